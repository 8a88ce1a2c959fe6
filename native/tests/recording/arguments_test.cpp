// Snapshots of arguments: the right ones on every line, and room for new ones for ever.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

// Each step replaces the snapshot, as `update(step=...)` does, and records some spans with it.
struct Loop {
    EventName name{"arguments", "step"};
    std::uint32_t snapshot = 0;

    void step(std::uint64_t number, std::size_t bytes = 0) {
        Thread* thread = recording_thread();
        REQUIRE(thread != nullptr);
        thread->session->release_arguments(snapshot);
        snapshot = thread->session->put_arguments(",\"step\":" + std::to_string(number) + ",\"pad\":\"" +
                                                  std::string(bytes, 'x') + "\"");
        for (int i = 0; i < 3; ++i) SpanScope(name, snapshot).close({0, number, RecordFlag::has_count});
    }
};

Footer finished(std::uint64_t spans) {
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    const Footer footer = check_complete(trace, "finalize");
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

TEST("a long run of small snapshots fits in a small spool") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.spool_bytes = 40 * unit_bytes;
    settings.wait_on_overflow = true;
    start_run(settings);
    Loop loop;
    const std::uint64_t steps = scaled(60'000);
    for (std::uint64_t i = 1; i <= steps; ++i) {
        loop.step(i);
        if (i % 2000 == 0) CHECK_EQ(current_session()->flush(), 0);
    }
    CHECK_EQ(finished(3 * steps).number("args_sanitised"), 0);
}

TEST("a long run of large snapshots fits in a small spool") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.spool_bytes = 64 * unit_bytes;
    start_run(settings);
    Loop loop;
    constexpr std::uint64_t steps = 120;
    for (std::uint64_t i = 1; i <= steps; ++i) {
        // Lengths on both sides of whole units.
        loop.step(i, 180'000 + i * 1000);
        for (int pass = 0; pass < 3; ++pass) CHECK_EQ(current_session()->flush(), 0);
    }
    CHECK_EQ(finished(3 * steps).number("args_sanitised"), 0);
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
        const std::uint32_t first = session->put_arguments(",\"first\":1");
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
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.spool_bytes = 8 * unit_bytes;
    start_run(settings);
    Loop loop;
    loop.step(1, 10 * unit_bytes);
    loop.step(2);
    CHECK_EQ(finished(6).number("args_sanitised"), 1);
}

TEST("arguments of spans can be left out of the trace, those of other events stay") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.user_args = false;
    start_run(settings);
    Loop loop;
    loop.step(1);
    EventName counter("counter", "loss");
    record_now(Kind::counter, counter, ",\"loss\":0.5");
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    for (const TraceEvent& e : trace.of("X")) CHECK_EQ(e.arg("step"), "");
    for (const TraceEvent& e : trace.of("C")) CHECK_EQ(e.arg("loss"), "0.5");
    CHECK_EQ(trace.count("C"), 1);
}
