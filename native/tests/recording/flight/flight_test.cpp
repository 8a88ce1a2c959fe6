// A flight recorder keeps the last events, as many as fit or as old as it was told, until it is asked.
#include "dftrace/recording/flight_recorder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <latch>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

TraceSettings recorder(const ScratchDir& dir, std::size_t units, std::uint64_t flight_ns = 0) {
    TraceSettings settings = dir.settings();
    settings.flight_recorder = true;
    settings.flight_ns = flight_ns;
    settings.spool_bytes = units * unit_bytes;
    return settings;
}

// Spans with the numbers [from, to).
std::uint64_t record(EventName& name, std::uint64_t from, std::uint64_t to) {
    std::uint64_t stored = 0;
    for (std::uint64_t n = from; n < to; ++n) {
        SpanScope span(name);
        stored += span.close({0, n, RecordFlag::has_count});
    }
    return stored;
}

int dump(const char* reason = "asked") { return current_session()->dump(reason); }

// The numbers of a trace's spans, in order.
std::vector<std::uint64_t> numbers(const Trace& trace) {
    std::vector<std::uint64_t> found;
    trace.each([&](const TraceEvent& e) {
        if (e.ph == "X") found.push_back(e.number("count"));
    });
    std::sort(found.begin(), found.end());
    return found;
}

void check_row(const std::vector<std::uint64_t>& found, std::uint64_t from, std::uint64_t to) {
    CHECK_EQ(found.size(), to - from);
    if (found.empty() || to == from) return;
    CHECK_EQ(found.front(), from);
    CHECK_EQ(found.back(), to - 1);
    CHECK(std::adjacent_find(found.begin(), found.end()) == found.end());
}

void wait_for_ns(std::uint64_t ns) {
    const std::uint64_t end = clock_ns(CLOCK_MONOTONIC) + ns;
    while (clock_ns(CLOCK_MONOTONIC) < end) std::this_thread::yield();
}

// With more and more time that is kept, until the machine came to the dump, which `test` tells, before what
// was recorded was as old as that.
void in_time(std::uint64_t window_ns, const std::function<bool(std::uint64_t)>& test) {
    while (!test(window_ns)) window_ns *= 4;
}

// Since a moment of CLOCK_MONOTONIC. The recorder goes by another clock: a tenth is for that.
bool within(std::uint64_t window_ns, std::uint64_t since_ns) {
    return clock_ns(CLOCK_MONOTONIC) - since_ns < window_ns / 10 * 9;
}

}  // namespace

TEST("the last events that fit are kept, in no more bytes than were allowed") {
    for (const std::size_t units : {8u, 30u, 200u}) {
        const ScratchDir dir;
        start_run(recorder(dir, units));
        EventName name("flight", "bounded");
        std::uint64_t next = 0;
        for (const std::uint64_t rounds : {100'000u, 100u, 30'000u}) {
            CHECK_EQ(record(name, next, next + rounds), rounds);
            next += rounds;
        }
        CHECK(current_session()->spool_bytes_used() <= units * unit_bytes);
        CHECK_EQ(dump(), 0);
        const auto [outcome, trace, footer] = finished();
        const auto kept = numbers(trace);
        // All but header, names, the thread's own and the two that are being filled.
        const std::uint64_t least = (units - 5) * 1023;
        CHECK(kept.size() >= std::min(next, least));
        check_row(kept, next - kept.size(), next);
        CHECK_EQ(footer.told("overwritten"), next - kept.size());
        CHECK_EQ(footer.number("dropped"), 0);
    }
}

TEST("of the seconds that are kept nothing is missing, and nothing older is there") {
    in_time(30'000'000, [](std::uint64_t window_ns) {
        const ScratchDir dir;
        start_run(recorder(dir, 4000, window_ns));
        EventName name("flight", "seconds");
        std::vector<std::uint64_t> ended, ended_ns;
        const std::uint64_t end = clock_ns(CLOCK_MONOTONIC) + 4 * window_ns;
        do {
            record(name, ended.size(), ended.size() + 1);
            ended.push_back(recording_thread()->last_tick);
            ended_ns.push_back(clock_ns(CLOCK_MONOTONIC));
            // As many in a longer window: to write more of them would take longer, too.
            if (ended.size() % 64 == 0) wait_for_ns(window_ns / 1500);
        } while (ended_ns.back() < end);
        CHECK_EQ(dump(), 0);
        const bool some = ended.size() > 12 && within(window_ns, ended_ns[ended.size() - 12]);
        const Outcome outcome = finish_run({"finalize"});
        if (!some) return false;
        const Trace trace = read_trace(outcome.trace_path);
        check_complete(trace, "finalize");
        const auto kept = numbers(trace);
        // A machine that had other things to do left nothing older, or nothing that is so new.
        if (kept.size() <= 10 || kept.size() == ended.size()) return false;
        check_row(kept, ended.size() - kept.size(), ended.size());
        std::uint64_t first_ns = UINT64_MAX, last_ns = 0;
        trace.each([&](const TraceEvent& e) {
            if (e.ph != "X") return;
            first_ns = std::min(first_ns, e.ts + e.dur);
            last_ns = std::max(last_ns, e.ts + e.dur);
        });
        const TraceEvent note = trace.of("i").at(0);
        char seconds[16];
        std::snprintf(seconds, sizeof seconds, "%.3f", static_cast<double>(window_ns) / 1e9);
        CHECK_EQ(note.arg("seconds"), seconds);
        CHECK(first_ns + 1000 >= note.ts - window_ns);
        // When the last one that was left out ended, by the rate of those that were not.
        const double ns_per_tick = static_cast<double>(last_ns - first_ns) /
                                   static_cast<double>(ended.back() - ended.at(kept.front()));
        const double gap_ns =
            static_cast<double>(ended[kept.front()] - ended[kept.front() - 1]) * ns_per_tick;
        CHECK(static_cast<double>(first_ns) - gap_ns < static_cast<double>(note.ts - window_ns) + 1000);
        return true;
    });
}

TEST("arguments stay as long as an event names them, and no longer") {
    const ScratchDir dir;
    constexpr std::size_t units = 64;
    start_run(recorder(dir, units));
    EventName name("flight", "arguments");
    const std::uint64_t updates = scaled(100'000);
    std::uint64_t n = 0;
    for (int round = 0; round < 2; ++round) {
        std::uint32_t snapshot = 0;
        for (std::uint64_t i = 0; i < updates; ++i, ++n) {
            Session* session = recording_thread()->session;
            const std::string members = ",\"n\":" + std::to_string(n);
            std::uint32_t before = snapshot;
            std::optional<std::uint32_t> stored;
            // Where the drain thread is late there is no room for a while: an event would be dropped.
            while (!(stored = session->put_arguments(members, before))) std::this_thread::yield();
            snapshot = *stored;
            SpanScope span(name, snapshot);
            CHECK(span.close({0, n, RecordFlag::has_count}));
        }
        CHECK(current_session()->spool_bytes_used() <= units * unit_bytes);
        CHECK_EQ(dump(), 0);
    }
    const auto [outcome, trace, footer] = finished();
    CHECK_EQ(footer.number("args_sanitised"), 0);
    CHECK_EQ(footer.number("dropped"), 0);
    CHECK_EQ(footer.number("spans") + footer.told("overwritten"), n);
    std::uint64_t wrong = 0, second = 0;
    trace.each([&](const TraceEvent& e) {
        if (e.ph != "X") return;
        wrong += e.arg("n") != e.arg("count");
        second += e.number("count") >= updates;
    });
    CHECK_EQ(wrong, 0);
    CHECK(second > 0);
}

TEST("arguments that can never fit cost no event") {
    const ScratchDir dir;
    start_run(recorder(dir, 20));
    EventName name("flight", "large");
    record(name, 0, 5000);
    CHECK(record_now(Kind::instant, name, ",\"x\":\"" + std::string(2 << 20, 'x') + "\""));
    CHECK_EQ(dump(), 0);
    const Trace trace = read_trace(finish_run({"finalize"}).trace_path);
    CHECK_EQ(check_complete(trace, "finalize").number("args_sanitised"), 1);
    check_row(numbers(trace), 0, 5000);
}

TEST("threads that have all units between them go on with the one that each has") {
    const ScratchDir dir;
    start_run(recorder(dir, 8));  // header, names, six threads
    std::vector<std::thread> threads;
    std::latch all_here(6), all_done(6);
    for (int t = 0; t < 6; ++t)
        threads.emplace_back([&, t] {
            EventName name("flight", std::to_string(t));
            CHECK_EQ(record(name, 0, 1), 1);
            all_here.arrive_and_wait();
            CHECK_EQ(record(name, 1, 5000), 4999);
            all_done.arrive_and_wait();
        });
    for (auto& thread : threads) thread.join();
    CHECK_EQ(dump(), 0);
    const auto [outcome, trace, footer] = finished();
    CHECK_EQ(footer.number("spans") + footer.told("overwritten"), 30'000);
    std::vector<std::uint64_t> last(6);
    trace.each([&](const TraceEvent& e) {
        if (e.ph != "X") return;
        std::uint64_t& most = last.at(std::stoul(std::string(e.name)));
        most = std::max(most, e.number("count"));
    });
    CHECK(std::count(last.begin(), last.end(), 4999u) >= 1);
}

TEST("a dump for which the disk is full holds what it was asked for until there is room") {
    in_time(20'000'000, [](std::uint64_t window_ns) {
        const ScratchDir dir;
        TraceSettings settings = recorder(dir, 60, window_ns);
        settings.prefix = dir.file("later/trace");
        start_run(settings);
        EventName name("flight", "held");
        const std::uint64_t begun = clock_ns(CLOCK_MONOTONIC);
        std::uint64_t stored = record(name, 0, 1000);
        CHECK_EQ(dump("first"), ENOENT);
        bool quick = within(window_ns, begun);
        wait_for_ns(2 * window_ns);
        CHECK_EQ(dump("second"), ENOENT);
        stored += record(name, 1000, 100'000);  // more than there is room for
        REQUIRE(mkdir(dir.file("later").c_str(), 0700) == 0);
        CHECK_EQ(dump("third"), 0);
        const std::uint64_t going_on = clock_ns(CLOCK_MONOTONIC);
        const std::uint64_t again = record(name, 100'000, 101'000);
        CHECK_EQ(again, 1000);
        CHECK_EQ(dump("fourth"), 0);
        quick &= within(window_ns, going_on);
        const Outcome outcome = finish_run({"finalize"});
        if (!quick) return false;
        const Trace trace = read_trace(outcome.trace_path);
        const Footer footer = check_complete(trace, "finalize");
        const auto kept = numbers(trace);
        CHECK_EQ(footer.number("spans") + footer.number("dropped"), 101'000);
        CHECK_EQ(kept.size(), stored + again);
        REQUIRE(kept.size() > 2000);
        check_row({kept.begin(), kept.begin() + 1000}, 0, 1000);
        CHECK_EQ(kept.back(), 100'999);
        return true;
    });
}

TEST("what a unit is as old as: its last event with a tick") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 8 * unit_bytes);
    UnitHeader* unit = spool.acquire(UnitKind::ring, 1);
    CHECK_EQ(last_tick_of(unit), 0);
    const auto put = [unit](Kind kind, std::uint64_t start, std::uint64_t end, std::uint8_t flags = 0) {
        Record& r = records_of(unit)[unit->committed.fetch_add(1)];
        r = Record{};
        r.kind = kind;
        r.start = start;
        r.end = end;
        r.flags = flags;
    };
    put(Kind::span, 10, 20);
    CHECK_EQ(last_tick_of(unit), 20);
    put(Kind::instant, 30, 0);
    CHECK_EQ(last_tick_of(unit), 30);
    put(Kind::lane_name, 0, 0);
    put(Kind::span, 1'700'000'000'000'000'000, 1'700'000'000'000'000'001, RecordFlag::absolute_time);
    CHECK_EQ(last_tick_of(unit), 30);
    CHECK_EQ(events_in(unit, 0, 4), 3);
    CHECK_EQ(events_in(unit, 2, 3), 0);
}
