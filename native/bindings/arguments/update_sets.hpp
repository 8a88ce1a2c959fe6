// What nodes carry: a set of arguments that never changes, shared by all nodes that have the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "arguments/json_args.hpp"
#include "arguments/numbers.hpp"
#include "dftrace/recording/runtime.hpp"
#include "python.hpp"

namespace dftrace::py {

struct Arguments {
    enum class Kind : std::uint8_t { unknown, plain, other };
    PyObject_HEAD PyObject* values;  // dict, of which nobody else has a reference
    std::uint64_t generation;        // session that has the snapshot; 0 for none
    std::uint32_t snapshot;          // its number there; 0 where it was too large
    bool settled;                    // good for more than one span
    Kind kind;                       // see `is_plain`
    std::uint64_t merge;             // the last that went over it, and what that made of it
    PyObject* merged;                // borrowed
    NumberSet* merged_numbers;       // borrowed
    std::uint64_t number;            // its own, never given again
    PlainText* plain;                // owned; or null
};

int add_arguments_type();

// `values` as a set; a new reference, or null with an error set. The dict is the set's from then on.
PyObject* new_arguments(Ref values);

struct Snapshot {
    std::optional<std::uint32_t> number = 0;  // nothing where there is no room for it by now
    bool settled = true;                      // other spans may name it, too
};
// Stores the set where the session of `thread` has not got it. False if that session ended meanwhile: a
// value's __str__ is the user's code, and another thread may run during it.
[[nodiscard]] bool take_snapshot(Arguments* arguments, Thread* thread, Snapshot& snapshot);

// The text of a set that `is_plain`, for the session of that generation; adds what it could not hold as it
// is.
const PlainText& plain_text(Arguments* arguments, std::uint64_t generation, std::uint64_t& sanitised);

// What a node carries, borrowed: a set, and numbers over it; both may be null.
struct Carried {
    PyObject* arguments = nullptr;
    NumberSet* numbers = nullptr;
};
// All of it, as a new dict; null with an error set.
PyObject* values_of(const Carried& carried);

// An update, which makes one set of each that it meets.
class Merge {
  public:
    // `updates`: a dict; null where there are only numbers.
    Merge(PyObject* updates, const Numbers& numbers) noexcept
        : updates_(Py_XNewRef(updates)), given_(updates ? nullptr : &numbers), number_(++last_) {}
    ~Merge();
    Merge(const Merge&) = delete;
    Merge& operator=(const Merge&) = delete;

    // False with an error set. What `merged` says is borrowed.
    [[nodiscard]] bool with(const Carried& before, Carried& merged) {
        if (given_ && before.numbers && before.numbers->merge == number_ && before.numbers->merged) {
            merged = {before.arguments, before.numbers->merged};
            return true;
        }
        return make(before, merged);
    }

  private:
    bool make(const Carried& before, Carried& merged);
    bool make_numbers(const Carried& before, Carried& merged);
    PyObject* keep(Ref values);

    static std::uint64_t last_;
    Ref updates_;
    const Numbers* given_;
    std::uint64_t number_;
    Carried from_nothing_;
    std::vector<Ref> made_;  // a value that goes may run code that takes them from all nodes
    std::vector<NumberSet*> made_numbers_;
};

}  // namespace dftrace::py
