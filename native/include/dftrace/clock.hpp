// Time: cheap ticks on the traced thread, turned into nanoseconds by the drain thread.
#pragma once

#include <time.h>

#include <cstdint>
#include <vector>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace dftrace {

inline std::uint64_t clock_ns(clockid_t which) noexcept {
    timespec t;
    clock_gettime(which, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000u + static_cast<std::uint64_t>(t.tv_nsec);
}

// Where ticks come from; decided once when the library is loaded.
struct TickSource {
    bool tsc = false;
    // Two readings at least this far apart are never the same nanosecond after conversion.
    std::uint64_t min_step = 1;

    std::uint64_t now() const noexcept {
#if defined(__x86_64__)
        if (tsc) [[likely]]
            return __rdtsc();
#endif
        return clock_ns(CLOCK_MONOTONIC);
    }
    const char* name() const noexcept { return tsc ? "tsc" : "monotonic"; }
};

// Hidden: the hot path reads it without a detour over the table of what others may replace.
__attribute__((visibility("hidden"))) extern TickSource tick_source;

// Finds the source and its rate; waits at most a few milliseconds, once.
void calibrate_tick_source();

// From `tick` on, a tick lasts `scale` / 2^32 nanoseconds and begins at `ns` since the epoch.
struct ClockSegment {
    std::uint64_t tick;
    std::uint64_t ns;
    std::uint64_t scale;
};

// Ticks to epoch nanoseconds: a continuous, rising, piecewise linear map. The wall clock is read
// once; afterwards only the monotonic clock corrects the rate, so a step of the wall clock does
// not show in the trace.
class ClockMap {
  public:
    // Starts a map at the present moment.
    static ClockMap anchored_now();
    // A map with known segments (a spool's), oldest first.
    static ClockMap from_segments(std::vector<ClockSegment> segments);

    std::uint64_t to_ns(std::uint64_t tick) const noexcept;
    // Corrects the rate against the monotonic clock when it is time to; true if a segment came.
    bool follow();
    const std::vector<ClockSegment>& segments() const noexcept { return segments_; }

  private:
    std::vector<ClockSegment> segments_;
    std::uint64_t first_tick_ = 0;
    std::uint64_t first_monotonic_ns_ = 0;
    std::uint64_t epoch_minus_monotonic_ns_ = 0;
    std::uint64_t next_check_tick_ = 0;
};

}  // namespace dftrace
