// A line of a trace in any form that JSON has for it: members in any order, blanks, escapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

// dftracer numbers the phases: 1 for spans, then counters, instants, metadata.
inline constexpr std::string_view numbered_phases = "XCiM";

// What lines of samples of stacks are called; only the second has some.
inline constexpr std::string_view stack_phase = "P", stack_category = "stack", profile_name = "Profile",
                                  chunk_name = "ProfileChunk";

struct GeneralLine {
    enum class Kind {
        framing,     // a bracket, or nothing
        unreadable,  // no object, or one without phase and name
        event,
        samples,  // of stacks, or the line before the first of them
    };
    Kind kind = Kind::unreadable;
    std::string ph, name, category;
    std::uint64_t id = 0;
    std::uint64_t parent = no_parent;
    std::int64_t pid = 0, tid = 0;
    std::int64_t start = no_time;  // what is beyond all times is the last of them, or the first
    std::int64_t duration = -1;
    std::string_view args;  // without its braces
};

// Of duplicate members the last one counts. Arrays and objects are followed to a depth of 200.
GeneralLine read_general_line(std::string_view line);

// Microseconds as JSON writes a number, in ns: rounded to the nearest, halves away from 0. Nothing beyond
// `most_micros`.
std::optional<std::int64_t> ns_of_micros(std::string_view number) noexcept;

// The whole number of 64 bits that a value is, or that dftracer has written there as a text.
std::optional<std::int64_t> whole_value(std::string_view value);

// The whole number of 64 bits that a member of arguments is, or that dftracer has written there as a text.
// The arguments are JSON with their braces; `name` stands in quotes. Of duplicate members the last one
// counts.
std::optional<std::int64_t> whole_member(std::string_view args, std::string_view name);

}  // namespace dftrace
