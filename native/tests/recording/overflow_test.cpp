// What happens when the spool is full: as configured, counted, and never for good.
#include <atomic>
#include <filesystem>
#include <latch>
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

std::uint64_t record(EventName& name, std::uint64_t spans) {
    std::uint64_t stored = 0;
    for (std::uint64_t i = 0; i < spans; ++i) stored += SpanScope(name).close();
    return stored;
}

}  // namespace

TEST("drop: what is lost is counted, and nothing else is lost") {
    const ScratchDir dir;
    TraceSettings settings = with_units(dir, 6);
    settings.flush_interval_ms = 10'000;
    start_run(settings);
    EventName name("overflow", "drop");
    const std::uint64_t spans = 20'000;
    const std::uint64_t stored = record(name, spans);
    CHECK(stored < spans);
    const Outcome outcome = finish_run({"finalize"});
    const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
    CHECK_EQ(footer.number("spans"), stored);
    CHECK_EQ(footer.number("dropped"), spans - stored);
    CHECK_EQ(footer.number("waits"), 0);
}

TEST("drop: once the file has caught up, recording goes on, in all units that there are") {
    // Header, thread and names; and one ring, or three, of which two come back at once.
    for (const auto& [units, spans] : {std::pair(4u, 500u), {6u, 2000u}}) {
        const ScratchDir dir;
        TraceSettings settings = with_units(dir, units);
        settings.flush_interval_ms = 10'000;
        start_run(settings);
        EventName name("overflow", "drop");
        std::uint64_t stored = record(name, 10'000);
        CHECK(stored < 10'000);
        for (int i = 0; i < 20; ++i) {
            CHECK_EQ(current_session()->flush(), 0);
            const std::uint64_t more = record(name, spans);
            CHECK(spans == 500 ? more > 0 : more == spans);
            stored += more;
        }
        const Outcome outcome = finish_run({"finalize"});
        const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
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
        CHECK_EQ(record(name, spans), spans);
        const Outcome outcome = finish_run({"finalize"});
        const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
        CHECK_EQ(footer.number("spans"), spans);
        CHECK_EQ(footer.number("dropped"), 0);
        if (units < 6 && spans > 5000) CHECK(footer.number("waits") > 0);
    }
}

TEST("wait: no arguments are lost, but those that would never fit") {
    const ScratchDir dir;
    TraceSettings settings = with_units(dir, 6);
    settings.wait_on_overflow = true;
    start_run(settings);
    EventName name("overflow", "wait");
    CHECK_EQ(record(name, 1), 1);
    Session* session = recording_thread()->session;
    std::uint32_t held = 0;
    for (std::uint64_t n = 0; n < 200; ++n) {
        held = session->put_arguments(
            ",\"n\":" + std::to_string(n) + ",\"pad\":\"" + std::string(5000, 'x') + '"', held);
        CHECK(held != 0);
        CHECK_EQ(record(name, 1), 1);
    }
    CHECK_EQ(session->header().args_sanitised.load(), 0);
    CHECK(session->header().waits.load() > 0);
    CHECK_EQ(session->put_arguments(std::string(20 * unit_bytes, 'x')), 0);
    CHECK_EQ(session->header().args_sanitised.load(), 1);
    const Outcome outcome = finish_run({"finalize"});
    check_complete(read_trace(outcome.trace_path), "finalize");
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
            record(name, 1);
            all_here.arrive_and_wait();
            CHECK_EQ(record(name, spans), spans);
        });
    for (auto& thread : threads) thread.join();
    const Outcome outcome = finish_run({"finalize"});
    const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
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
    for (int i = 0; i < 100; ++i) std::thread([&] { stored += record(name, 5); }).join();
    CHECK_EQ(stored, 500);
    // Twelve at a time: five or six have a unit, and as they live the others cannot get one.
    std::atomic<std::uint64_t> more{0};
    std::latch together(12);
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 12; ++i)
            threads.emplace_back([&] {
                more += record(name, 5);
                together.arrive_and_wait();
            });
    }
    CHECK(more > 0 && more < 60);
    std::thread([&] { CHECK_EQ(record(name, 5), 5); }).join();
    const Outcome outcome = finish_run({"finalize"});
    const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
    CHECK_EQ(footer.number("spans"), stored + more + 5);
    CHECK_EQ(footer.number("dropped"), 60 - more);
    CHECK(footer.number("waits") > 0);
}

TEST("wait: a trace that cannot be written does not stop the training") {
    const ScratchDir dir;
    TraceSettings settings = with_units(dir, 5);
    settings.prefix = dir.file("gone/trace");
    settings.wait_on_overflow = true;
    start_run(settings);
    EventName name("overflow", "no directory");
    const std::uint64_t stored = record(name, 10'000);
    CHECK(stored < 10'000);
    const Outcome outcome = finish_run({"finalize"});
    CHECK(!outcome.error.empty());
    CHECK(!outcome.spool_path.empty());
    CHECK(std::filesystem::exists(outcome.spool_path));
    CHECK(outcome.lost_lines > 0 && outcome.lost_lines <= stored);
}

TEST("a thread for which there is no room records nothing, and the others go on") {
    const ScratchDir dir;
    start_run(with_units(dir, 4));  // the second thread gets the last unit
    EventName name("overflow", "no room");
    CHECK_EQ(record(name, 100), 100);
    std::thread([&] {
        CHECK_EQ(record(name, 100), 100);
        std::thread([&] { CHECK_EQ(record(name, 100), 0); }).join();
        CHECK_EQ(record(name, 100), 100);
    }).join();
    const Outcome outcome = finish_run({"finalize"});
    const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
    CHECK_EQ(footer.number("spans"), 300);
    CHECK(footer.number("dropped") > 0);
}

TEST("names for which there was no room are known as soon as there is") {
    const ScratchDir dir;
    TraceSettings settings = with_units(dir, 5);  // header, thread, names, two rings
    settings.flush_interval_ms = 100'000;
    start_run(settings);
    EventName first("overflow", std::string(40'000, 'a'));
    std::uint64_t stored = record(first, 1000);
    while (current_session()->header().units.load() < 5) stored += record(first, 1);
    EventName second("overflow", std::string(40'000, 'b'));
    CHECK_EQ(record(second, 5), 5);
    for (int i = 0; i < 3; ++i) CHECK_EQ(current_session()->flush(), 0);
    CHECK_EQ(record(second, 5), 5);
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
