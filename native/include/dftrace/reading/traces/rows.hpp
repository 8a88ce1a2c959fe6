// The events of a block of lines, as columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "dftrace/index/covered_time.hpp"

namespace dftrace {

inline constexpr std::int64_t no_time = std::numeric_limits<std::int64_t>::min();
// The year 2115. Start and duration of this size make an end that 64 bits hold.
inline constexpr std::int64_t most_micros = 4'600'000'000'000'000;

// Of `Rows::form`: another than the layout of the recorder, or the numbers in it that have three decimals.
inline constexpr std::uint8_t other_form = 0xff, start_has_decimals = 1, duration_has_decimals = 2;

// Two lines of a cache, which processors fetch in pairs: what one thread writes line by line and what another
// reads are not to stand in the same.
inline constexpr std::size_t shared_line_bytes = 128;

// A line of samples of stacks, which is no event: where in the block its arguments are, without their braces.
struct StackLine {
    std::uint32_t args_at = 0, args_bytes = 0;
    std::uint32_t track = 0, label = 0;  // of `Labels`
    std::uint64_t id = 0;
};

struct alignas(shared_line_bytes) Rows {
    std::size_t size = 0;
    std::vector<std::uint8_t> ph;        // its letter; 0 where `phases` has a longer text
    std::vector<std::uint32_t> label;    // of `Labels`
    std::vector<std::uint32_t> track;    // of `Labels`
    std::vector<std::uint64_t> id;       // 0 where there is none
    std::vector<std::uint64_t> parent;   // args.p_idx, or `no_parent`
    std::vector<std::int64_t> start;     // ns as the line has it, or `no_time`
    std::vector<std::int64_t> duration;  // ns, or -1
    // The members of args without braces, in the block; 0 where there are no args.
    std::vector<std::uint32_t> args_at;
    std::vector<std::uint32_t> args_bytes;
    std::vector<std::uint32_t> line_at;
    std::vector<std::uint8_t> form;  // of the line
    std::vector<std::pair<std::size_t, std::string>> phases;
    std::vector<StackLine> stacks;
    std::size_t lines = 0;
    std::size_t unreadable = 0;  // lines that hold neither an event nor samples

    void clear() noexcept {
        size = lines = unreadable = 0;
        phases.clear();
        stacks.clear();
    }
    void make_room(std::size_t rows) {
        if (rows <= ph.size()) return;
        rows += rows / 2 + 64;
        for (auto* column : {&label, &track, &args_at, &args_bytes, &line_at}) column->resize(rows);
        for (auto* column : {&id, &parent}) column->resize(rows);
        for (auto* column : {&start, &duration}) column->resize(rows);
        for (auto* column : {&ph, &form}) column->resize(rows);
    }
};

}  // namespace dftrace
