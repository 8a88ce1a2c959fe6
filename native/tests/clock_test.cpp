// Ticks become nanoseconds that rise, agree with the kernel's clock and survive the spool.
#include "dftrace/clock.hpp"

#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"

using dftrace::ClockMap;
using dftrace::ClockSegment;
using dftrace::tick_source;

namespace {

// The densest readings that a thread may take.
std::uint64_t next_reading(std::uint64_t last) {
    const std::uint64_t now = tick_source.now();
    return now > last + tick_source.min_step ? now : last + tick_source.min_step;
}

struct BusyRun {
    ClockMap map = ClockMap::anchored_now();
    std::vector<std::uint64_t> ticks;
    std::vector<std::uint64_t> seen_ns;  // as converted at once
    std::uint64_t monotonic_ns = 0;
};

// Reads the clock until the map has been corrected twice, or would have been.
BusyRun busy_run() {
    BusyRun run;
    const std::uint64_t begin = dftrace::clock_ns(CLOCK_MONOTONIC);
    std::uint64_t last = tick_source.now();
    int corrections = 0;
    do {
        corrections += run.map.follow();
        for (int i = 0; i < 50; ++i) {
            last = next_reading(last);
            run.ticks.push_back(last);
            run.seen_ns.push_back(run.map.to_ns(last));
        }
        run.monotonic_ns = dftrace::clock_ns(CLOCK_MONOTONIC) - begin;
        for (volatile int wait = 0; wait < 20'000;) wait = wait + 1;
    } while (corrections < 2 && run.monotonic_ns < 1'600'000'000);
    return run;
}

}  // namespace

TEST("a run's readings rise strictly, are never changed by a later correction, and keep the rate") {
    const BusyRun run = busy_run();
    bool rising = true, kept = true;
    for (std::size_t i = 0; i < run.ticks.size(); ++i) {
        kept &= run.map.to_ns(run.ticks[i]) == run.seen_ns[i];
        rising &= i == 0 || run.seen_ns[i] > run.seen_ns[i - 1];
    }
    CHECK(rising);
    CHECK(kept);
    const double mapped = static_cast<double>(run.seen_ns.back() - run.seen_ns.front());
    const double ratio = mapped / static_cast<double>(run.monotonic_ns);
    CHECK(ratio > 0.99 && ratio < 1.01);
}

TEST("nanoseconds count from the epoch") {
    constexpr std::uint64_t hour_ns = 3'600'000'000'000;
    const std::uint64_t wall = dftrace::clock_ns(CLOCK_REALTIME);
    const std::uint64_t mapped = ClockMap::anchored_now().to_ns(tick_source.now());
    CHECK(mapped > wall - hour_ns && mapped < wall + hour_ns);
}

TEST("two readings one step apart are different nanoseconds, also across a correction") {
    const BusyRun run = busy_run();
    const auto& segments = run.map.segments();
    for (std::size_t s = 0; s < segments.size(); ++s) {
        const std::uint64_t around = segments[s].tick;
        for (std::uint64_t tick = around - 2000; tick != around + 2000; ++tick)
            if (run.map.to_ns(tick) >= run.map.to_ns(tick + tick_source.min_step)) {
                CHECK(run.map.to_ns(tick) < run.map.to_ns(tick + tick_source.min_step));
                return;
            }
        // A correction may round, not jump.
        if (s > 0) CHECK(run.map.to_ns(around) - run.map.to_ns(around - 1) <= tick_source.min_step + 2);
    }
}

TEST("a map made from another's segments converts alike") {
    const BusyRun run = busy_run();
    const ClockMap copy = ClockMap::from_segments(run.map.segments());
    CHECK_EQ(copy.segments().size(), run.map.segments().size());
    for (std::size_t i = 0; i < run.ticks.size(); i += 97)
        if (copy.to_ns(run.ticks[i]) != run.seen_ns[i]) {
            CHECK_EQ(copy.to_ns(run.ticks[i]), run.seen_ns[i]);
            return;
        }
}

TEST("each reading is converted by the segment it lies in") {
    constexpr std::uint64_t one = std::uint64_t{1} << 32;  // one nanosecond a tick
    const ClockMap map = ClockMap::from_segments(
        {{1000, 5'000'000, one}, {2000, 5'001'000, 2 * one}, {3000, 5'003'000, one / 2}});
    CHECK_EQ(map.to_ns(1000), 5'000'000);
    CHECK_EQ(map.to_ns(1999), 5'000'999);
    CHECK_EQ(map.to_ns(2000), 5'001'000);
    CHECK_EQ(map.to_ns(2999), 5'002'998);
    CHECK_EQ(map.to_ns(3001), 5'003'000);
    CHECK_EQ(map.to_ns(5000), 5'004'000);
    // A span that was begun while the map was made.
    CHECK_EQ(map.to_ns(990), 4'999'990);
}

TEST("a year of ticks does not overflow") {
    constexpr std::uint64_t year_ns = 31'557'600'000'000'000;
    const std::uint64_t third = (std::uint64_t{1} << 32) / 3;
    const ClockMap map = ClockMap::from_segments({{0, 1'700'000'000'000'000'000, third}});
    const std::uint64_t end = map.to_ns(3 * year_ns) - 1'700'000'000'000'000'000;
    CHECK(end > year_ns - year_ns / 1'000'000 && end <= year_ns);
}
