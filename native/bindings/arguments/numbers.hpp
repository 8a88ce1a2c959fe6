// Whole numbers that a call gives by name, as in `node(step=3)`: kept without an object, over a set of
// arguments, and stored with it when a span needs them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "dftrace/recording/runtime.hpp"
#include "python.hpp"

namespace dftrace::py {

struct Arguments;

// Stands in columns of numbers where there is none: readers could not tell it from that.
constexpr std::int64_t no_number = std::numeric_limits<std::int64_t>::min();

struct Numbers {
    static constexpr std::size_t most = 4;
    std::size_t count = 0;
    std::array<std::uint8_t, most> keys{};  // in the table of names that were given so far
    std::array<std::int64_t, most> values{};

    // False where there is no place for one more name.
    bool put(std::uint8_t key, std::int64_t value) noexcept;
    bool operator==(const Numbers& other) const noexcept;
};

// Reads what stands behind `names` in a call, in the order in which the Python side merges it. False, with no
// error set, where it is something else than a few exact and small `int`s: then the Python side has to.
[[nodiscard]] bool read_numbers(PyObject* const* values, PyObject* names, Numbers& numbers);
// The key of a name that is known from now on; false where it cannot be, with an error set.
[[nodiscard]] bool learn_key(const char* name, std::uint8_t& key);
// Whether a dict has a value by that name.
bool has_key(PyObject* dict, std::uint8_t key);
// False with an error set.
[[nodiscard]] bool put_into(PyObject* dict, const Numbers& numbers);

// Numbers over a set that never changes. Shared by all nodes that have the same; holds no object.
struct NumberSet {
    Numbers numbers;
    std::uint64_t over;        // `number` of the Arguments, 0 for none
    std::uint64_t generation;  // session that has the snapshot; 0 for none
    std::uint32_t snapshot;    // its number there; 0 where it was too large
    bool stored;               // else the snapshot is one of other numbers, to be released with the next
    std::uint32_t users;
    std::uint64_t merge;  // the last that went over it, and what that made of it
    NumberSet* merged;
    PyObject* settled;  // borrowed
    NumberSet* next;    // of those that are free
};

// That of these numbers, counted; null where there is no memory for one.
NumberSet* take_numbers(std::uint64_t over, const Numbers& numbers) noexcept;
void put_away(NumberSet* set) noexcept;  // nobody has it any more
inline void drop_numbers(NumberSet* set) noexcept {
    if (set && --set->users == 0) put_away(set);
}
// Whether numbers can lie over these arguments (null: none): plain values alone, and few, of which the text
// can be made at any time without the user's code.
bool is_plain(Arguments* arguments);
// Stores a snapshot of numbers alone in the session of `thread`. `instead_of` is released with it, and is 0
// then. Nothing where there is no room for it by now.
[[nodiscard]] std::optional<std::uint32_t> put_numbers(const Numbers& numbers, std::uint32_t& instead_of,
                                                       Thread* thread) noexcept;
// Number of the snapshot in the session of `thread`, stored there if need be. `over` is what the set says.
// Nothing where there is no room for it by now.
[[nodiscard]] std::optional<std::uint32_t> snapshot_of(NumberSet* set, Arguments* over, Thread* thread);

}  // namespace dftrace::py
