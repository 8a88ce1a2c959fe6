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

}  // namespace dftrace
