// Calibration of the tick source and the map from ticks to nanoseconds.
#include "dftrace/system/clock.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "dftrace/system/small_file.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace dftrace {

TickSource tick_source;

namespace {

double ns_per_tick = 1.0;

// The pair of readings that were closest together out of a few tries.
ClockReading read_both() {
    ClockReading best{};
    std::uint64_t best_gap = UINT64_MAX;
    for (int attempt = 0; attempt < 5; ++attempt) {
        const std::uint64_t before = tick_source.now();
        const std::uint64_t ns = clock_ns(CLOCK_BOOTTIME);
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
    const SmallFile list("/sys/devices/system/clocksource/clocksource0/available_clocksource");
    for (std::string_view names = list.line(); !names.empty();) {
        const auto end = std::min(names.find(' '), names.size());
        if (names.substr(0, end) == "tsc") return true;
        names.remove_prefix(std::min(end + 1, names.size()));
    }
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
        const ClockReading first = read_both();
        constexpr std::uint64_t baseline_ns = 3'000'000;
        // A clock that is held still (for tests, by libfaketime) gives no rate: then its own nanoseconds are
        // ticks.
        constexpr std::uint64_t most_ticks = 1'000'000'000;
        while (clock_ns(CLOCK_BOOTTIME) - first.ns < baseline_ns && __rdtsc() - first.tick < most_ticks)
            _mm_pause();
        const ClockReading last = read_both();
        if (last.ns - first.ns < baseline_ns) {
            tick_source.tsc = false;
            return true;
        }
        ns_per_tick = static_cast<double>(last.ns - first.ns) / static_cast<double>(last.tick - first.tick);
        tick_source.in_a_millisecond = std::llround(1e6 / ns_per_tick);
        // One part in a thousand more than a nanosecond covers every later correction of the rate.
        tick_source.min_step = static_cast<std::uint64_t>(1.001 / ns_per_tick) + 1;
        return true;
    }();
    (void)done;
#endif
}

ClockMap ClockMap::anchored_now(std::uint64_t epoch_offset_ns) {
    const ClockReading now = read_both();
    return anchored(now, now.ns + epoch_offset_ns, ns_per_tick);
}

ClockMap ClockMap::anchored(const ClockReading& now, std::uint64_t epoch_ns, double ns_per_tick_value) {
    ClockMap map;
    map.epoch_minus_system_ns_ = epoch_ns - now.ns;
    map.first_rate_ = map.rate_ = ns_per_tick_value;
    map.baseline_ = map.last_look_ = now;
    map.segments_.push_back({now.tick, epoch_ns, scaled(ns_per_tick_value)});
    map.next_look_tick_ = now.tick + static_cast<std::uint64_t>(0.2e9 / ns_per_tick_value);
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

std::uint64_t ClockMap::ticks_before(std::uint64_t tick, std::uint64_t ns) const noexcept {
    const std::uint64_t scale = std::max<std::uint64_t>(segments_.back().scale, 1);
    const unsigned __int128 ticks = (static_cast<unsigned __int128>(ns) << 32) / scale;
    return ticks < tick ? tick - static_cast<std::uint64_t>(ticks) : 0;
}

bool ClockMap::follow() {
    if (tick_source.now() < next_look_tick_) return false;
    return follow(read_both());
}

bool ClockMap::follow(const ClockReading& now) {
    // A processor may begin to count anew when it wakes from a deep sleep: there is no going back.
    if (now.tick <= last_look_.tick) return false;
    const std::uint64_t mapped = to_ns(now.tick);
    const auto error =
        static_cast<double>(static_cast<std::int64_t>(now.ns + epoch_minus_system_ns_ - mapped));
    // No correction of the system's clock runs at a hundredth of the time: one of the two stood still.
    constexpr double least_jump_ns = 10e6;
    const bool jumped =
        std::abs(error) > std::max(least_jump_ns, static_cast<double>(now.ns - last_look_.ns) / 100);
    last_look_ = now;
    next_look_tick_ = now.tick + static_cast<std::uint64_t>(1e9 / rate_);
    if (jumped)
        baseline_ = now;  // the rate that was measured before still holds
    else if (tick_source.tsc)
        measure_rate(now);
    if (jumped && error > 0) {
        segments_.push_back({now.tick, mapped + static_cast<std::uint64_t>(error), scaled(rate_)});
        return true;
    }
    // The system's own clock is corrected already, and its single nanoseconds leave no room to bend.
    if (!tick_source.tsc) return false;
    // Work the error off over the next second.
    const double bend = std::abs(error) < 50.0 ? 0.0 : std::clamp(error * 1e-9, -4e-4, 4e-4);
    const std::uint64_t scale = scaled(rate_ * (1.0 + bend));
    const auto change = static_cast<double>(static_cast<std::int64_t>(scale - segments_.back().scale));
    // Straight on, while a second of it adds up to less than what can be read.
    if (bend == 0.0 && std::abs(change) * 1e9 < 20.0 * static_cast<double>(scale)) return false;
    // One more, since the conversion rounds down: a reading before the joint and one behind it would
    // else be the same nanosecond.
    segments_.push_back({now.tick, mapped + 1, scale});
    return true;
}

// With the bend it stays within what `min_step` covers.
void ClockMap::measure_rate(const ClockReading& now) noexcept {
    const double rate =
        static_cast<double>(now.ns - baseline_.ns) / static_cast<double>(now.tick - baseline_.tick);
    rate_ = std::clamp(rate, first_rate_ * (1 - 5e-4), first_rate_ * (1 + 5e-4));
}

}  // namespace dftrace
