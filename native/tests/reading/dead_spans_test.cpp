// Spans that were open when their process died, and those that had ended in its last moment.
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;

namespace {

constexpr std::uint64_t first_unit_records = (unit_bytes - thread_block_bytes) / sizeof(Record);

// Stores the record of a span as its end does, and leaves it among the open ones.
void store(Thread& thread, const OpenSpan& span) {
    Record* record = thread.reserve();
    *record = {};
    record->start = span.start;
    record->end = thread.tick();
    record->id = span.id;
    record->parent = span.parent;
    record->node = span.node;
    record->lane = span.lane;
    record->level = span.level;
    record->kind = Kind::span;
    thread.commit();
}

}  // namespace

TEST("spans that were open are told, as far as the spool shows them, tasks' spans too") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] {
        EventName name("adoption", "open");
        for (std::uint32_t i = 0; i < max_open_spans + 100; ++i) (new SpanScope(name))->leak();
        Thread* thread = recording_thread();
        const std::uint32_t lane = thread->take_lane();
        thread->take_task_slot({thread->new_id(), thread->tick(), 0, name.in(*thread), 0, lane, 1, 1});
    });
    const Trace trace = adopted(spool);
    check_complete(trace, "died");
    const auto open = trace.of("B");
    REQUIRE_EQ(open.size(), max_open_spans + 1);
    for (std::size_t i = 0; i < max_open_spans; ++i) {
        CHECK_EQ(open[i].number("level"), i + 1);
        CHECK_EQ(open[i].number("p_idx"), i ? open[i - 1].id : 0);
    }
    CHECK_EQ(open.back().tid, 0x40000000);
}

TEST("a process killed while it took a span off the middle of its stack shows none twice") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] {
        EventName name("adoption", "open");
        for (int i = 0; i < 5; ++i) (new SpanScope(name))->leak();
        // Half-way through `remove`: entries have moved down, the depth still counts the old one.
        OpenSpan* open = recording_thread()->block->open;
        open[1] = open[2];
        open[2] = open[3];
    });
    const Trace trace = adopted(spool);
    check_complete(trace, "died");
    CHECK_EQ(trace.count("B"), 4);
}

TEST("killed between storing a span's record and taking it off the open ones: it has ended") {
    for (const bool full_unit : {false, true}) {
        const ScratchDir dir;
        const std::string spool = leave_spool(dir, unwritten(dir.settings()), [full_unit] {
            EventName name("dead", "span");
            if (full_unit)  // its record is the last of the unit
                while (!recording_thread() ||
                       recording_thread()->count + 1 < recording_thread()->unit->capacity)
                    SpanScope span(name);
            (new SpanScope(name))->leak();
            Thread* thread = recording_thread();
            store(*thread, *thread->push(name.in(*thread), 0));
        });
        const Trace trace = adopted(spool);
        const Footer footer = check_complete(trace, "died");
        CHECK_EQ(footer.number("unfinished"), 1);
        CHECK_EQ(footer.number("spans"), full_unit ? first_unit_records : 1);
        CHECK_EQ(trace.of("B")[0].number("level"), 1);
    }
}

TEST("the same for the span of a task, and for one that another thread ended") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] {
        EventName name("dead", "span");
        Thread* thread = recording_thread();
        const std::uint32_t lane = thread->take_lane();
        const OpenSpan task{thread->new_id(), thread->tick(), 0, name.in(*thread), 0, lane, 1, 1};
        const OpenSpan other_task{thread->new_id(), thread->tick(), 0, name.in(*thread), 0, lane, 1, 1};
        thread->take_task_slot(task);
        thread->take_task_slot(other_task);
        store(*thread, task);
        const OpenSpan moved = *thread->push(name.in(*thread), 0);
        std::thread([&moved] { store(*recording_thread(), moved); }).join();
    });
    const Trace trace = adopted(spool);
    const Footer footer = check_complete(trace, "died");
    CHECK_EQ(footer.number("spans"), 2);
    CHECK_EQ(footer.number("unfinished"), 1);
}

TEST("a span that ended is not told as open when its record is in the trace already") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] {
        EventName name("dead", "span");
        Thread* thread = recording_thread();
        store(*thread, *thread->push(name.in(*thread), 0));
        current_session()->flush();
    });
    const Footer footer = check_complete(adopted(spool), "died");
    CHECK_EQ(footer.number("spans"), 1);
    CHECK_EQ(footer.number("unfinished"), 0);
}

TEST("spans that were to be recorded when they are over are told as far as they have come, and once") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] {
        EventName step("pipeline", "step"), epoch("pipeline", "epoch");
        Thread* thread = recording_thread();
        AwaitedSlot* slots = thread->block->awaited;
        const std::uint64_t start = thread->tick(), end = thread->tick();
        slots[0].put({thread->new_id(), start, end, step.in(*thread), 0, 3, 19, 2,
                      awaited_epoch | awaited_step | awaited_microbatches, 0});
        slots[1].put({thread->new_id(), start, 0, epoch.in(*thread), 0, 7, 0, 0, awaited_epoch, 0});
        std::thread([&] {
            Thread* other = recording_thread();
            const std::uint64_t id = other->new_id();
            other->block->awaited[0].put({id, start, end, step.in(*other), 0, 0, 0, 0, 0, 0});
            store(*other, {id, start, 0, step.in(*other), 0, 0, 1, 1});
            other->block->awaited[1].put({other->new_id(), start, end, epoch.in(*other), 0, 0, 0, 0, 0, 0});
            other->block->awaited[1].clear();
        }).join();
    });
    const Trace trace = adopted(spool);
    const Footer footer = check_complete(trace, "died");
    CHECK_EQ(footer.number("spans"), 2);
    CHECK_EQ(footer.number("unfinished"), 1);
    CHECK_EQ(trace.of("B")[0].number("epoch"), 7);
    const auto told = trace.of("X").back();
    CHECK_EQ(told.number("step"), 19);
    CHECK_EQ(told.number("epoch"), 3);
    CHECK_EQ(told.number("microbatches"), 2);
}
