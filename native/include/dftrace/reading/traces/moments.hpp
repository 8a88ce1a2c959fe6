// Places among moments that rise, as NumPy's searchsorted finds them; in less time where those asked for
// rise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dftrace {

// Of each of those asked for how many moments are less, or with `right` not greater.
void find_places(std::span<const std::int64_t> moments, std::span<const std::int64_t> asked, bool right,
                 std::int64_t* places);

// How much of stretches of time, in order and without overlaps, lies in each window.
void find_covered(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
                  std::span<const std::int64_t> lows, std::span<const std::int64_t> highs,
                  std::int64_t* covered);

// What a thread shows of itself: where its spans begin, and where they end, and moments of other kinds that
// say that it went on. Each rises.
struct SignsOfLife {
    std::span<const std::int64_t> starts, ends, others;
};

// Whom a thread may have waited for; of each when it was called, when its end was seen, how much earlier that
// may have been, until when the thread waited at most, and whether only a span's begin or end ends its wait.
struct AwaitedCalls {
    std::span<const std::int64_t> start, end, late, until;
    std::span<const std::uint8_t> within;
};

struct Silence {
    std::int64_t start, end, call;
};

// The longest silence of the thread, the last of several, that the end of each call broke up to `soon` behind
// it, as far as that end; those calls that are `within` come last.
std::vector<Silence> broken_silences(const SignsOfLife& signs, const AwaitedCalls& calls, std::int64_t soon);

}  // namespace dftrace
