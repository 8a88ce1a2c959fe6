// Ticks become nanoseconds that rise, agree with the kernel's clock and survive the spool.
#include "dftrace/system/clock.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"

using dftrace::ClockMap;
using dftrace::ClockReading;
using dftrace::ClockSegment;
using dftrace::tick_source;

namespace {

// The densest readings that a thread may take.
std::uint64_t next_reading(std::uint64_t last) {
    const std::uint64_t now = tick_source.now();
    return now > last + tick_source.min_step ? now : last + tick_source.min_step;
}

struct BusyRun {
    ClockMap map = ClockMap::anchored_now(dftrace::epoch_offset_now());
    std::vector<std::uint64_t> ticks;
    std::vector<std::uint64_t> seen_ns;  // as converted at once
    std::uint64_t monotonic_ns = 0;
};

// Reads the clock until the map has been corrected twice, or would have been.
BusyRun made_run() {
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

const BusyRun& busy_run() {
    static const BusyRun run = made_run();
    return run;
}

// A machine whose two clocks do as told: ticks of a third of a nanosecond, and the system's clock.
struct Machine {
    static constexpr std::uint64_t second = 1'000'000'000;
    static constexpr std::uint64_t ticks_a_second = 3'000'000'000;
    static constexpr std::uint64_t epoch_ns = 1'700'000'000 * second;
    static constexpr ClockReading start{123'456'789, 987'654'321};

    ClockReading now = start;
    ClockMap map = ClockMap::anchored(start, epoch_ns, 1.0 / 3);

    // What an ideal clock would say.
    std::uint64_t true_ns() const { return epoch_ns + now.ns - start.ns; }
    std::uint64_t mapped_ns() const { return map.to_ns(now.tick); }
    void run(std::uint64_t seconds) {
        for (std::uint64_t i = 0; i < seconds; ++i) {
            now.tick += ticks_a_second;
            now.ns += second;
            map.follow(now);
        }
    }
};

bool within(std::uint64_t a, std::uint64_t b, std::uint64_t ns) { return (a > b ? a - b : b - a) <= ns; }

}  // namespace

TEST("a sleep in which the ticks stood still shows at once as the time that it took") {
    Machine machine;
    machine.run(10);
    const std::uint64_t asleep_tick = machine.now.tick;
    const std::uint64_t before = machine.map.to_ns(asleep_tick - 1);
    machine.now.tick += 3000;
    machine.now.ns += 3600 * Machine::second;
    CHECK(machine.map.follow(machine.now));
    CHECK(within(machine.mapped_ns(), machine.true_ns(), 10));
    CHECK_EQ(machine.map.to_ns(asleep_tick - 1), before);
    machine.run(10);
    CHECK(within(machine.mapped_ns(), machine.true_ns(), 1000));
}

TEST("ticks that went on while the system's clock stood still neither turn back nor bend the rate") {
    Machine machine;
    machine.run(10);
    machine.now.tick += 3600 * Machine::ticks_a_second;
    const std::uint64_t ahead = machine.mapped_ns();
    machine.map.follow(machine.now);
    CHECK(machine.mapped_ns() >= ahead);
    std::uint64_t last = machine.mapped_ns();
    for (int i = 0; i < 100; ++i) {
        machine.run(1);
        const std::uint64_t took = machine.mapped_ns() - last;
        last = machine.mapped_ns();
        CHECK(within(took, Machine::second, Machine::second / 2000));
    }
}

TEST("a counter that begins anew leaves the map as it is") {
    Machine machine;
    machine.run(10);
    const std::uint64_t tick = machine.now.tick, mapped = machine.mapped_ns();
    const std::size_t segments = machine.map.segments().size();
    machine.now.tick = 5;
    machine.now.ns += Machine::second;
    CHECK(!machine.map.follow(machine.now));
    CHECK_EQ(machine.map.segments().size(), segments);
    CHECK_EQ(machine.map.to_ns(tick), mapped);
}

TEST("a system's clock that is being set by NTP is followed without a jump") {
    if (!tick_source.tsc) SKIP("only the processor's counter needs to follow");
    Machine machine;
    machine.run(60);
    for (int minute = 0; minute < 30; ++minute) {
        machine.now.tick += 60 * Machine::ticks_a_second;
        machine.now.ns += 60 * Machine::second + 60 * 500'000;  // 500 parts in a million
        machine.map.follow(machine.now);
        CHECK(machine.mapped_ns() - machine.map.to_ns(machine.now.tick - 1) <= 2);
    }
}

TEST("a long run needs few corrections, though no reading of a clock is exact") {
    if (!tick_source.tsc) SKIP("only the processor's counter needs to follow");
    Machine machine;
    std::mt19937 random(1);
    std::uniform_int_distribution<std::uint64_t> off_by(0, 40);
    for (int second = 0; second < 3600; ++second) {
        machine.now.tick += Machine::ticks_a_second + 3000;  // a millionth faster than calibrated
        machine.now.ns += Machine::second;
        machine.map.follow({machine.now.tick, machine.now.ns + off_by(random)});
        if (second > 10) CHECK(within(machine.mapped_ns(), machine.true_ns(), 1000));
    }
    CHECK(machine.map.segments().size() < 200);
}

TEST("a run's readings rise strictly, are never changed by a later correction, and keep the rate") {
    const BusyRun& run = busy_run();
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

TEST("two readings one step apart are different nanoseconds, also across a correction") {
    const BusyRun& run = busy_run();
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
    const BusyRun& run = busy_run();
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
