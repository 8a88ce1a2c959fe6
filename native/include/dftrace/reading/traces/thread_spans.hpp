// What is asked of all spans of a process at once: on which threads they are, and whether they nest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dftrace {

struct PairCount {
    std::int64_t first;
    std::uint8_t second;
    std::int64_t count;
};

// How often each pair of numbers stands side by side, in the order in which they come.
std::vector<PairCount> count_pairs(std::span<const std::int64_t> first, std::span<const std::uint8_t> second);

// Whether of spans by their start, of those that begin together the longest first, none ends later than one
// that holds its start, or begins so near to the end of that one.
bool nest(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends, std::int64_t near);

// Puts spans that are in the order of their starts in order where several begin together: the longest first,
// of as long ones by their number.
void order_ties(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
                std::span<const std::uint64_t> numbers, std::span<std::int64_t> order);

// From the first start to the last end of events; the first is behind the last where there are none.
struct EventReach {
    std::int64_t first, last;
};

// Of the rows that have a time and are not of a phase. Lengths and times count up to `latest`.
EventReach event_reach(std::span<const std::uint8_t> phases, std::span<const std::int64_t> starts,
                       std::span<const std::int64_t> lengths, std::uint8_t without, std::int64_t latest);

}  // namespace dftrace
