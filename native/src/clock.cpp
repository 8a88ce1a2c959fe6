// Calibration of the tick source and the map from ticks to nanoseconds.
#include "dftrace/clock.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace dftrace {

TickSource tick_source;

namespace {

double ns_per_tick = 1.0;

struct Reading {
    std::uint64_t tick;
    std::uint64_t monotonic_ns;
};

// The pair of readings that were closest together out of a few tries.
Reading read_both() {
    Reading best{};
    std::uint64_t best_gap = UINT64_MAX;
    for (int attempt = 0; attempt < 5; ++attempt) {
        const std::uint64_t before = tick_source.now();
        const std::uint64_t ns = clock_ns(CLOCK_MONOTONIC);
        const std::uint64_t after = tick_source.now();
        if (after - before < best_gap) {
            best_gap = after - before;
            best = {before + (after - before) / 2, ns};
        }
    }
    return best;
}

#if defined(__x86_64__)
bool cpu_has_invariant_tsc() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
}

// The kernel takes "tsc" off this list when it finds the counters of the cores to disagree.
bool kernel_trusts_tsc() {
    std::ifstream list("/sys/devices/system/clocksource/clocksource0/available_clocksource");
    std::string name;
    while (list >> name)
        if (name == "tsc") return true;
    return false;
}
#endif

std::uint64_t scaled(double ns_per_tick_value) {
    return static_cast<std::uint64_t>(std::llround(std::ldexp(ns_per_tick_value, 32)));
}

}  // namespace

void calibrate_tick_source() {
#if defined(__x86_64__)
    static const bool done = [] {
        if (!cpu_has_invariant_tsc() || !kernel_trusts_tsc()) return true;
        tick_source.tsc = true;
        const Reading first = read_both();
        constexpr std::uint64_t baseline_ns = 3'000'000;
        while (clock_ns(CLOCK_MONOTONIC) - first.monotonic_ns < baseline_ns) _mm_pause();
        const Reading last = read_both();
        ns_per_tick = static_cast<double>(last.monotonic_ns - first.monotonic_ns) /
                      static_cast<double>(last.tick - first.tick);
        // One part in a thousand more than a nanosecond covers every later correction of the rate.
        tick_source.min_step = static_cast<std::uint64_t>(1.001 / ns_per_tick) + 1;
        return true;
    }();
    (void)done;
#endif
}

ClockMap ClockMap::anchored_now() {
    ClockMap map;
    const Reading now = read_both();
    const std::uint64_t wall = clock_ns(CLOCK_REALTIME);
    const std::uint64_t monotonic = clock_ns(CLOCK_MONOTONIC);
    map.epoch_minus_monotonic_ns_ = wall - monotonic;
    map.first_tick_ = now.tick;
    map.first_monotonic_ns_ = now.monotonic_ns;
    map.segments_.push_back(
        {now.tick, now.monotonic_ns + map.epoch_minus_monotonic_ns_, scaled(ns_per_tick)});
    map.next_check_tick_ = now.tick + static_cast<std::uint64_t>(0.2e9 / ns_per_tick);
    return map;
}

ClockMap ClockMap::from_segments(std::vector<ClockSegment> segments) {
    ClockMap map;
    map.segments_ = std::move(segments);
    return map;
}

std::uint64_t ClockMap::to_ns(std::uint64_t tick) const noexcept {
    // Nearly every record is newer than the last correction: look from the back.
    const ClockSegment* segment = &segments_.back();
    while (tick < segment->tick && segment != segments_.data()) --segment;
    using wide = unsigned __int128;
    if (tick >= segment->tick)
        return segment->ns + static_cast<std::uint64_t>((wide(tick - segment->tick) * segment->scale) >> 32);
    // Before the first anchor: a span that was begun while the map was being made. Down here, too.
    constexpr wide almost_one = 0xFFFFFFFFu;
    return segment->ns -
           static_cast<std::uint64_t>((wide(segment->tick - tick) * segment->scale + almost_one) >> 32);
}

bool ClockMap::follow() {
    if (!tick_source.tsc || tick_source.now() < next_check_tick_) return false;
    const Reading now = read_both();
    const double ticks = static_cast<double>(now.tick - first_tick_);
    const double rate = static_cast<double>(now.monotonic_ns - first_monotonic_ns_) / ticks;
    const std::uint64_t mapped = to_ns(now.tick);
    const auto error =
        static_cast<double>(static_cast<std::int64_t>(now.monotonic_ns + epoch_minus_monotonic_ns_ - mapped));
    // Work the error off over the next second; never bend by more than half of what min_step covers.
    const double bend = std::clamp(error * 1e-9, -4e-4, 4e-4);
    next_check_tick_ = now.tick + static_cast<std::uint64_t>(1e9 / rate);
    if (std::abs(error) < 50.0) return false;
    // One more, since the conversion rounds down: a reading before the joint and one behind it would
    // else be the same nanosecond.
    segments_.push_back({now.tick, mapped + 1, scaled(rate * (1.0 + bend))});
    return true;
}

}  // namespace dftrace
