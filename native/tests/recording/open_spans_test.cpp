// Open spans: deep, left open, ended out of order, and those of tasks.
#include <array>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

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
    const Trace trace = finished().trace;
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
    const Trace trace = finished().trace;
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
    const Trace trace = finished().trace;
    std::set<std::uint64_t> ended, open;
    for (const TraceEvent& e : trace.of("X")) ended.insert(e.tid);
    for (const TraceEvent& e : trace.of("B")) open.insert(e.tid);
    CHECK_EQ(trace.count("X"), 2);
    CHECK_EQ(trace.count("B"), 2);
    CHECK_EQ(ended.size(), 2);  // they overlapped
    CHECK_EQ(open.size(), 1);
    CHECK_EQ(*open.begin(), 0x40000000);
}
