// What nodes carry: a set of arguments that never changes, shared by all nodes that have the same.
#pragma once

#include <cstdint>
#include <vector>

#include "dftrace/recording/runtime.hpp"
#include "python.hpp"

namespace dftrace::py {

struct Arguments {
    PyObject_HEAD PyObject* values;  // dict, of which nobody else has a reference
    std::uint64_t generation;        // session that has the snapshot; 0 for none
    std::uint32_t snapshot;          // its number there; 0 where there was no room
    bool settled;                    // good for more than one span
    std::uint64_t merge;             // the last that went over it, and what that made of it
    PyObject* merged;                // borrowed
};

int add_arguments_type();

// `values` as a set; a new reference, or null with an error set. The dict is the set's from then on.
PyObject* new_arguments(Ref values);

struct Snapshot {
    std::uint32_t number = 0;
    bool settled = true;  // other spans may name it, too
};
// Stores the set where the session of `thread` has not got it. False if that session ended meanwhile: a
// value's __str__ is the user's code, and another thread may run during it.
[[nodiscard]] bool take_snapshot(Arguments* arguments, Thread* thread, Snapshot& snapshot);

// An update, which makes one set of each that it meets.
class Merge {
  public:
    explicit Merge(PyObject* updates) noexcept : updates_(updates), number_(++last_) {}
    // Borrowed; null with an error set. `before` may be null, for no arguments.
    PyObject* with(PyObject* before);

  private:
    PyObject* keep(Ref values);

    static std::uint64_t last_;
    PyObject* updates_;
    std::uint64_t number_;
    PyObject* from_nothing_ = nullptr;
    std::vector<Ref> made_;  // a value that goes may run code that takes them from all nodes
};

}  // namespace dftrace::py
