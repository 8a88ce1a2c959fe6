// Spans that do not nest are all in the trace, on tracks where viewers show them.
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

// A span whose times the user gives, as `log_event` stores it.
void log_span(EventName& name, std::uint64_t start_ns, std::uint64_t end_ns, std::uint32_t lane = 0) {
    Thread* thread = recording_thread();
    REQUIRE(thread != nullptr);
    const std::uint32_t node = name.in(*thread);
    Record* record = thread->reserve();
    REQUIRE(record != nullptr);
    *record = {};
    record->start = start_ns;
    record->end = end_ns;
    record->id = thread->new_id();
    record->level = 1;
    record->node = node;
    record->kind = Kind::span;
    record->lane = lane;
    record->flags = RecordFlag::absolute_time;
    thread->commit();
}

Trace finished() {
    const Outcome outcome = finish_run({"finalize"});
    Trace trace = read_trace(outcome.trace_path);
    check_complete(trace, "finalize");  // slices of a track nest
    return trace;
}

}  // namespace

TEST("starts and stops that interleave at random") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("lanes", "interleaved");
    std::mt19937 random(11);
    std::deque<std::unique_ptr<SpanScope>> open;
    constexpr std::size_t spans = 3000;
    for (std::size_t i = 0; i < spans; ++i) {
        open.push_back(std::make_unique<SpanScope>(name));
        while (open.size() > 1 + random() % 6) {
            const auto which = open.begin() + static_cast<std::ptrdiff_t>(random() % open.size());
            (*which)->close();
            open.erase(which);
        }
    }
    open.clear();
    const Trace trace = finished();
    CHECK_EQ(trace.count("X"), spans);
    std::set<std::uint32_t> lanes;
    for (const TraceEvent& e : trace.of("X")) {
        CHECK(e.tid < first_task_lane || (e.tid >= first_overlap_lane && e.tid < first_logged_lane));
        lanes.insert(e.tid);
    }
    CHECK(lanes.size() > 1 && lanes.size() < 30);
    // Every track that holds slices has a name.
    std::set<std::uint32_t> named;
    for (const TraceEvent& e : trace.of("M"))
        if (e.name == "thread_name") named.insert(e.tid);
    for (const std::uint32_t tid : lanes)
        if (tid >= first_task_lane) CHECK(named.count(tid) == 1);
}

TEST("spans with times of the user's own lie apart from the measured ones") {
    const ScratchDir dir;
    const TraceSettings settings = dir.settings();
    start_run(settings);
    EventName measured("lanes", "measured"), logged("lanes", "logged");
    std::mt19937 random(12);
    const std::uint64_t base = epoch_ns() / 1000 * 1000;
    for (int i = 0; i < 1000; ++i) {
        SpanScope span(measured);
        const std::uint64_t start = base + random() % 1'000'000 * 1000;
        log_span(logged, start, start + random() % 10'000 * 1000);
    }
    const Trace trace = finished();
    std::map<std::string, std::size_t> count;
    for (const TraceEvent& e : trace.of("X")) {
        ++count[std::string(e.name)];
        CHECK_EQ(e.name == "logged", e.tid >= first_logged_lane);
        if (e.name == "logged") CHECK(e.ts >= base && e.ts % 1000 == 0 && e.dur % 1000 == 0);
    }
    CHECK_EQ(count["logged"], 1000);
    CHECK_EQ(count["measured"], 1000);
}

TEST("logged spans that nest share a track") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("lanes", "logged");
    const std::uint64_t base = epoch_ns() / 1000 * 1000;
    log_span(name, base + 2000, base + 3000);
    log_span(name, base + 4000, base + 5000);
    log_span(name, base + 1000, base + 6000);
    log_span(name, base + 2500, base + 7000);
    const Trace trace = finished();
    const auto spans = trace.of("X");
    REQUIRE_EQ(spans.size(), 4);
    CHECK_EQ(spans[1].tid, spans[0].tid);
    CHECK_EQ(spans[2].tid, spans[0].tid);
    CHECK(spans[3].tid != spans[0].tid);
}

TEST("logged spans of a named track lie there, and those that overlap beside it") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("lanes", "logged");
    Thread* thread = recording_thread();
    REQUIRE(thread != nullptr);
    const std::uint32_t lane = thread->session->lane_named(*thread, intern_name("track", "stream 7"));
    const std::uint64_t base = epoch_ns();
    log_span(name, base + 2001, base + 3002, lane);
    log_span(name, base + 1003, base + 6004, lane);
    log_span(name, base + 2500, base + 7000, lane);
    log_span(name, base + 6004, base + 6500);
    const Trace trace = finished();
    const auto spans = trace.of("X");
    REQUIRE_EQ(spans.size(), 4);
    CHECK_EQ(spans[0].tid, lane);
    CHECK_EQ(spans[1].tid, lane);
    CHECK_EQ(spans[1].dur, 5001);
    CHECK(spans[2].tid >= first_logged_lane);
    CHECK(spans[3].tid >= first_logged_lane && spans[3].tid != spans[2].tid);
    std::map<std::uint64_t, std::string> names;
    for (const TraceEvent& e : trace.of("M"))
        if (e.name == "thread_name") names[e.tid] = json_text(e.arg("name"));
    CHECK_EQ(names[lane], "stream 7");
    CHECK_EQ(names[spans[2].tid], "stream 7 2");
}

TEST("a track bears the name that it was given, whatever is in it") {
    const ScratchDir dir;
    start_run(dir.settings());
    const std::string given = "rank \"3\"\\node\t\x01 · ü";
    Thread* thread = recording_thread();
    REQUIRE(thread != nullptr);
    const std::uint32_t lane = thread->session->lane_named(*thread, intern_name("track", given));
    const Trace trace = finished();
    std::string found;
    for (const TraceEvent& e : trace.of("M"))
        if (e.name == "thread_name" && e.tid == lane) found = json_text(e.arg("name"));
    CHECK_EQ(found, given);
}
