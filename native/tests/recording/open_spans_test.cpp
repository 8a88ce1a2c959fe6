// Open spans: deep, left open, ended out of order, and those of tasks.
#include <array>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

Trace finished() {
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.error, "");
    Trace trace = read_trace(outcome.trace_path);
    check_complete(trace, "finalize");
    return trace;
}

void recurse(EventName& name, int depth) {
    SpanScope span(name);
    if (depth > 1) recurse(name, depth - 1);
}

}  // namespace

TEST("spans nest deeper than the block of open spans holds") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("open", "deep");
    constexpr int depth = static_cast<int>(max_open_spans) * 5;
    for (int i = 0; i < 3; ++i) recurse(name, depth);
    const Trace trace = finished();
    std::map<std::uint64_t, std::uint64_t> level_of;
    for (const TraceEvent& e : trace.of("X")) level_of[e.id] = e.number("level");
    CHECK_EQ(level_of.size(), 3 * depth);
    for (const TraceEvent& e : trace.of("X"))
        CHECK_EQ(e.number("level"), e.number("p_idx") ? level_of.at(e.number("p_idx")) + 1 : 1);
}

TEST("spans that are open at the end are told, the deepest too") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("open", "unfinished");
    constexpr std::size_t depth = max_open_spans + 60;
    std::vector<std::unique_ptr<SpanScope>> open;
    for (std::size_t i = 0; i < depth; ++i) open.push_back(std::make_unique<SpanScope>(name));
    const Trace trace = finished();
    const auto left = trace.of("B");
    REQUIRE_EQ(left.size(), depth);
    for (std::size_t i = 0; i < depth; ++i) {
        CHECK_EQ(left[i].number("level"), i + 1);
        CHECK_EQ(left[i].number("p_idx"), i ? left[i - 1].id : 0);
        CHECK_EQ(left[i].arg("unfinished"), "true");
        CHECK(!left[i].has_dur && left[i].has_ts);
    }
    // The run is over: ending them now is nothing.
    for (auto& span : open) CHECK(!span->close());
}

TEST("a span that ends out of order leaves the others as they are, on a track of its own") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName a("open", "a"), b("open", "b"), c("open", "c"), d("open", "d");
    SpanScope first(a), second(b), third(c);
    first.close();
    {
        SpanScope fourth(d);
        CHECK(fourth.recording());
    }
    third.close();
    second.close();
    const Trace trace = finished();
    std::map<std::string, TraceEvent> by_name;
    for (const TraceEvent& e : trace.of("X")) by_name[std::string(e.name)] = e;
    REQUIRE_EQ(by_name.size(), 4);
    CHECK(by_name["a"].tid >= first_overlap_lane);
    for (const char* name : {"b", "c", "d"}) CHECK_EQ(by_name[name].tid, by_name["b"].tid);
    CHECK(by_name["b"].tid < first_task_lane);
    CHECK_EQ(by_name["d"].number("p_idx"), by_name["c"].id);
    bool named = false;
    for (const TraceEvent& e : trace.of("M")) named |= e.name == "thread_name" && e.tid == by_name["a"].tid;
    CHECK(named);
}

TEST("spans may end out of order at any depth") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("open", "shuffled");
    constexpr std::size_t depth = max_open_spans + 20;
    std::vector<std::unique_ptr<SpanScope>> open;
    for (std::size_t i = 0; i < depth; ++i) open.push_back(std::make_unique<SpanScope>(name));
    for (std::size_t i = 0; i < depth; i += 2) open[i]->close();
    for (std::size_t i = depth - 1; i < depth; i -= 2) open[i]->close();
    CHECK_EQ(recording_thread()->depth, 0);
    { SpanScope again(name); }
    const Trace trace = finished();
    CHECK_EQ(trace.count("X"), depth + 1);
    CHECK_EQ(trace.count("B"), 0);
    std::set<std::uint64_t> ids;
    for (const TraceEvent& e : trace.of("X")) ids.insert(e.id);
    CHECK_EQ(ids.size(), depth + 1);
}

TEST("tasks have slots, and tracks that are used again") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("open", "task");
    Thread* thread = recording_thread();
    REQUIRE(thread != nullptr);
    const std::uint32_t node = name.in(*thread);
    const std::uint32_t first = thread->take_lane(), second = thread->take_lane();
    CHECK_EQ(first, first_task_lane);
    CHECK_EQ(second, first_task_lane + 1);
    thread->give_lane(second);
    thread->give_lane(first);
    CHECK_EQ(thread->take_lane(), first);

    std::vector<int> slots;
    for (std::uint32_t i = 0; i < max_open_task_spans; ++i)
        slots.push_back(thread->take_task_slot({thread->new_id(), thread->tick(), 0, node, 0, first, 1, 1}));
    CHECK_EQ(slots.back(), static_cast<int>(max_open_task_spans) - 1);
    CHECK_EQ(thread->take_task_slot({thread->new_id(), thread->tick(), 0, node, 0, first, 1, 1}), -1);
    thread->give_task_slot(-1);
    for (std::size_t i = 3; i < slots.size(); ++i) thread->give_task_slot(slots[i]);
    CHECK_EQ(thread->take_task_slot({thread->new_id(), thread->tick(), 0, node, 0, second, 1, 1}), 3);
    const Trace trace = finished();
    const auto left = trace.of("B");
    REQUIRE_EQ(left.size(), 4);
    CHECK_EQ(left[0].tid, first);
    CHECK_EQ(left[3].tid, second);
}

TEST("spans of tracks that are no thread's: open ones are told apart from those that have ended") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("open", "apart");
    Session* session = recording_thread()->session;
    const auto named = [](int n) { return intern_name("track", "track " + std::to_string(n)); };
    Thread* track = session->track_apart(named(0));
    REQUIRE(track != nullptr);
    const std::uint32_t node = name.in(*track);
    std::array<OpenSpan, 4> spans{};
    std::array<int, 4> slots{};
    for (std::size_t i = 0; i < spans.size(); ++i) {
        spans[i] = {track->new_id(), track->tick(), 0, node, 0, 0, 1, 1};
        slots[i] = track->take_task_slot(spans[i]);
    }
    for (std::size_t i = 0; i < 2; ++i) {
        Record* record = track->reserve();
        *record = {};
        record->start = spans[i].start;
        record->end = track->tick();
        record->id = spans[i].id;
        record->node = node;
        record->level = 1;
        record->kind = Kind::span;
        record->flags = RecordFlag::overlaps;
        track->commit();
        track->give_task_slot(slots[i]);
    }
    CHECK(session->track_apart(named(0)) == track);
    // Who makes up names without end gets no more tracks.
    std::set<Thread*> others;
    for (int n = 0; n < 100; ++n) others.insert(session->track_apart(named(n)));
    CHECK_EQ(others.size(), 64);
    const Trace trace = finished();
    std::set<std::uint64_t> ended, open;
    for (const TraceEvent& e : trace.of("X")) ended.insert(e.tid);
    for (const TraceEvent& e : trace.of("B")) open.insert(e.tid);
    CHECK_EQ(trace.count("X"), 2);
    CHECK_EQ(trace.count("B"), 2);
    CHECK_EQ(ended.size(), 2);  // they overlapped
    CHECK_EQ(open.size(), 1);
    CHECK_EQ(*open.begin(), 0x40000000);
}
