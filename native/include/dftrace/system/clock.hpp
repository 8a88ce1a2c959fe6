// Time: cheap ticks on the traced thread, turned into nanoseconds by the drain thread.
#pragma once

#include <time.h>

#include <algorithm>
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
    std::int64_t in_a_millisecond = 1'000'000;

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

// Nanoseconds since the epoch at which the system's clock that counts through sleep was at zero. Read once
// in a run: a step of the wall clock must not part its processes. Below zero, so around 2^64, where the wall
// clock shows less than the machine has been running for; sums with it come out right. A wall clock before
// 1970 is taken for the first hour of 1970: a span may have begun before the run has looked at it.
inline std::uint64_t epoch_offset_now() noexcept {
    constexpr time_t first_hour = 3600;
    timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    const std::uint64_t seconds = static_cast<std::uint64_t>(std::max(wall.tv_sec, first_hour));
    return seconds * 1'000'000'000u + static_cast<std::uint64_t>(wall.tv_nsec) - clock_ns(CLOCK_BOOTTIME);
}

// Finds the source and its rate; waits at most a few milliseconds, once.
void calibrate_tick_source();

// From `tick` on, a tick lasts `scale` / 2^32 nanoseconds and begins at `ns` since the epoch.
struct ClockSegment {
    std::uint64_t tick;
    std::uint64_t ns;
    std::uint64_t scale;
};

// Both clocks at one moment: the ticks, and the system's count of nanoseconds since it was started.
struct ClockReading {
    std::uint64_t tick;
    std::uint64_t ns;
};

// Ticks to epoch nanoseconds: a rising, piecewise linear map. The wall clock is read once, so a step
// of it does not show in the trace. Afterwards the rate follows the system's clock that also counts
// while the machine sleeps. Where the ticks did not, the map jumps forward; it never goes back.
class ClockMap {
  public:
    // Starts a map at the present moment; `epoch_offset_ns` as `epoch_offset_now` told it once.
    static ClockMap anchored_now(std::uint64_t epoch_offset_ns);
    // Starts a map at the moment of `now`, which was `epoch_ns` by the wall clock.
    static ClockMap anchored(const ClockReading& now, std::uint64_t epoch_ns, double ns_per_tick);
    // A map with known segments (a spool's), oldest first.
    static ClockMap from_segments(std::vector<ClockSegment> segments);

    std::uint64_t to_ns(std::uint64_t tick) const noexcept;
    // The tick that lies `ns` nanoseconds before `tick`, by the newest rate; 0 if there was none.
    std::uint64_t ticks_before(std::uint64_t tick, std::uint64_t ns) const noexcept;
    // Holds the map against the system's clock when it is time to; true if a segment came.
    bool follow();
    // The same, with the clocks as they were read.
    bool follow(const ClockReading& now);
    const std::vector<ClockSegment>& segments() const noexcept { return segments_; }

  private:
    void measure_rate(const ClockReading& now) noexcept;

    std::vector<ClockSegment> segments_;
    std::uint64_t epoch_minus_system_ns_ = 0;
    double first_rate_ = 1.0;  // nanoseconds a tick, as calibrated
    double rate_ = 1.0;        // as measured since `baseline_`
    ClockReading baseline_{};  // none of the two clocks has stood still since
    ClockReading last_look_{};
    std::uint64_t next_look_tick_ = 0;
};

}  // namespace dftrace
