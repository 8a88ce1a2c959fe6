// What happens when the spool is full of records or arguments: as configured, counted, and never for good.
#include <atomic>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

TraceSettings with_units(const ScratchDir& dir, std::size_t units) {
    TraceSettings settings = dir.settings();
    settings.spool_bytes = units * unit_bytes;
    return settings;
}

// Each step replaces the snapshot, as `update(step=...)` does, and records some spans with it.
struct Loop {
    EventName name{"arguments", "step"};
    std::uint32_t snapshot = 0;

    void step(std::uint64_t number, std::size_t bytes = 0) {
        Thread* thread = recording_thread();
        REQUIRE(thread != nullptr);
        thread->session->release_arguments(snapshot);
        snapshot = thread->session
                       ->put_arguments(",\"step\":" + std::to_string(number) + ",\"pad\":\"" +
                                       std::string(bytes, 'x') + "\"")
                       .value_or(0);
        for (int i = 0; i < 3; ++i) SpanScope(name, snapshot).close({0, number, RecordFlag::has_count});
    }
};

Footer check_steps(std::uint64_t spans) {
    const auto [outcome, trace, footer] = finished();
    CHECK_EQ(footer.number("spans"), spans);
    std::uint64_t wrong = 0, bare = 0;
    trace.each([&](const TraceEvent& e) {
        if (e.ph != "X") return;
        bare += e.arg("step").empty();
        wrong += !e.arg("step").empty() && e.arg("step") != e.arg("count");
    });
    CHECK_EQ(wrong, 0);
    if (footer.number("args_sanitised") == 0) CHECK_EQ(bare, 0);
    return footer;
}

}  // namespace

TEST("drop: once the file has caught up, recording goes on, in all units that there are") {
    // Header, thread and names; and one ring, or three, of which two come back at once.
    for (const auto& [units, spans] : {std::pair(4u, 500u), {6u, 2000u}}) {
        const ScratchDir dir;
        TraceSettings settings = with_units(dir, units);
        settings.flush_interval_ms = 10'000;
        start_run(settings);
        EventName name("overflow", "drop");
        std::uint64_t stored = record_spans(name, 10'000);
        CHECK(stored < 10'000);
        for (int i = 0; i < 20; ++i) {
            CHECK_EQ(current_session()->flush(), 0);
            const std::uint64_t more = record_spans(name, spans);
            CHECK(spans == 500 ? more > 0 : more == spans);
            stored += more;
        }
        const Footer footer = finished().footer;
        CHECK_EQ(footer.number("spans"), stored);
    }
}

TEST("wait: nothing is lost, however small the spool") {
    for (const std::size_t units : {4u, 5u, 6u, 20u}) {
        const ScratchDir dir;
        TraceSettings settings = with_units(dir, units);
        settings.wait_on_overflow = true;
        start_run(settings);
        EventName name("overflow", "wait");
        const std::uint64_t spans = scaled(30'000);
        CHECK_EQ(record_spans(name, spans), spans);
        const Footer footer = finished().footer;
        CHECK_EQ(footer.number("spans"), spans);
        CHECK_EQ(footer.number("dropped"), 0);
        if (units < 6 && spans > 5000) CHECK(footer.number("waits") > 0);
    }
}

TEST("wait: threads that hold all units between them still go on") {
    const ScratchDir dir;
    // Header, names, the first unit of each of four threads, and two for all of them.
    TraceSettings settings = with_units(dir, 8);
    settings.wait_on_overflow = true;
    start_run(settings);
    EventName name("overflow", "wait");
    const std::uint64_t spans = scaled(10'000);
    std::latch all_here(4);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&] {
            record_spans(name, 1);
            all_here.arrive_and_wait();
            CHECK_EQ(record_spans(name, spans), spans);
        });
    for (auto& thread : threads) thread.join();
    const Footer footer = finished().footer;
    CHECK_EQ(footer.number("spans"), 4 * (spans + 1));
    CHECK_EQ(footer.number("dropped"), 0);
}

TEST("wait: threads that come and go lose nothing, and one too many does not wait for ever") {
    const ScratchDir dir;
    TraceSettings settings = with_units(dir, 8);
    settings.flush_interval_ms = 1'000'000;
    settings.wait_on_overflow = true;
    start_run(settings);
    EventName name("overflow", "passing");
    std::uint64_t stored = 0;
    for (int i = 0; i < 100; ++i) std::thread([&] { stored += record_spans(name, 5); }).join();
    CHECK_EQ(stored, 500);
    // Twelve at a time: five or six have a unit, and as they live the others cannot get one.
    std::atomic<std::uint64_t> more{0};
    std::latch together(12);
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 12; ++i)
            threads.emplace_back([&] {
                more += record_spans(name, 5);
                together.arrive_and_wait();
            });
    }
    CHECK(more > 0 && more < 60);
    std::thread([&] { CHECK_EQ(record_spans(name, 5), 5); }).join();
    const Footer footer = finished().footer;
    CHECK_EQ(footer.number("spans"), stored + more + 5);
    CHECK_EQ(footer.number("dropped"), 60 - more);
    CHECK(footer.number("waits") > 0);
}

TEST("a thread for which there is no room records nothing, and the others go on") {
    const ScratchDir dir;
    start_run(with_units(dir, 4));  // the second thread gets the last unit
    EventName name("overflow", "no room");
    CHECK_EQ(record_spans(name, 100), 100);
    std::thread([&] {
        CHECK_EQ(record_spans(name, 100), 100);
        std::thread([&] { CHECK_EQ(record_spans(name, 100), 0); }).join();
        CHECK_EQ(record_spans(name, 100), 100);
    }).join();
    const Footer footer = finished().footer;
    CHECK_EQ(footer.number("spans"), 300);
    CHECK(footer.number("dropped") > 0);
}

TEST("names for which there was no room are known as soon as there is") {
    const ScratchDir dir;
    TraceSettings settings = with_units(dir, 5);  // header, thread, names, two rings
    settings.flush_interval_ms = 100'000;
    start_run(settings);
    EventName first("overflow", std::string(40'000, 'a'));
    std::uint64_t stored = record_spans(first, 1000);
    while (current_session()->header().units.load() < 5) stored += record_spans(first, 1);
    EventName second("overflow", std::string(40'000, 'b'));
    CHECK_EQ(record_spans(second, 5), 5);
    for (int i = 0; i < 3; ++i) CHECK_EQ(current_session()->flush(), 0);
    CHECK_EQ(record_spans(second, 5), 5);
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    CHECK_EQ(check_complete(trace, "finalize").number("spans"), stored + 10);
    std::size_t known = 0;
    trace.each([&known](const TraceEvent& e) { known += e.name == std::string(40'000, 'b'); });
    CHECK(known >= 5);
}

TEST("names for which there is no room leave lines that can be read") {
    const ScratchDir dir;
    TraceSettings settings = with_units(dir, 4);
    settings.flush_interval_ms = 10'000;
    start_run(settings);
    // The unit of names is full before the last of them.
    for (int i = 0; i < 3; ++i) {
        EventName large("overflow", std::string(40'000, static_cast<char>('a' + i)));
        SpanScope span(large);
    }
    EventName small("overflow", "small");
    { SpanScope span(small); }
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    check_complete(trace, "finalize");
    CHECK_EQ(trace.count("X"), 4);
    for (const TraceEvent& e : trace.of("X")) CHECK(!e.name.empty() && !e.cat.empty());
}

TEST("a long run of large snapshots fits in a small spool") {
    const ScratchDir dir;
    start_run(with_units(dir, 64));
    Loop loop;
    constexpr std::uint64_t steps = 120;
    for (std::uint64_t i = 1; i <= steps; ++i) {
        // Lengths on both sides of whole units.
        loop.step(i, 180'000 + i * 1000);
        for (int pass = 0; pass < 3; ++pass) CHECK_EQ(current_session()->flush(), 0);
    }
    CHECK_EQ(check_steps(3 * steps).number("args_sanitised"), 0);
}

TEST("a span that stays open keeps the arguments of its start, whatever its node gets meanwhile") {
    for (const bool deep : {false, true}) {
        const ScratchDir dir;
        start_run(dir.settings());
        EventName name("arguments", "long");
        std::vector<std::unique_ptr<SpanScope>> around;
        while (deep && around.size() < max_open_spans) around.push_back(std::make_unique<SpanScope>(name));
        REQUIRE(recording_thread() != nullptr);
        Session* session = current_session();
        const std::uint32_t first = session->put_arguments(",\"first\":1").value_or(0);
        const SpanScope open(name, first);
        session->release_arguments(first);
        Loop loop;
        for (std::uint64_t i = 1; i <= 20; ++i) {
            loop.step(i, unit_bytes);
            for (int pass = 0; pass < 3; ++pass) CHECK_EQ(session->flush(), 0);
        }
        const Outcome outcome = finish_run({"finalize"});
        const Trace trace = read_trace(outcome.trace_path);
        const auto left = trace.of("B");
        REQUIRE_EQ(left.size(), around.size() + 1);
        CHECK_EQ(left.back().arg("first"), "1");
    }
}

TEST("a snapshot for which there is no room is counted, and the span is recorded without it") {
    for (const bool wait : {false, true}) {  // which would be for ever
        const ScratchDir dir;
        TraceSettings settings = with_units(dir, 8);
        settings.wait_on_overflow = wait;
        start_run(settings);
        Loop loop;
        loop.step(1, 10 * unit_bytes);
        loop.step(2);
        CHECK_EQ(check_steps(6).number("args_sanitised"), 1);
    }
}
