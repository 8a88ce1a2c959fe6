// Whose spool may be adopted, whose may not, and what an adopted trace holds.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <utility>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/reading/adoption.hpp"
#include "dftrace/reading/live_spool.hpp"
#include "dftrace/system/host_name.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

void record(std::uint64_t spans) {
    EventName name("adoption", "span");
    record_spans(name, spans);
}

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

TEST("a spool that another adopts right now is left alone") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] { record(10); });
    const int other = open(spool.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(other >= 0 && flock(other, LOCK_EX | LOCK_NB) == 0);
    CHECK(adopt_spool(spool).state == Adopted::alive);
    close(other);
    CHECK_EQ(adopted(spool).count("X"), 10);
}

TEST("a pid that was given out again, or before a reboot, does not stand for the process") {
    for (const bool reboot : {false, true}) {
        const ScratchDir dir;
        const std::string spool = leave_spool(dir, dir.settings(), [] { record(10); });
        {
            const OpenedSpool opened(spool);
            opened.header().pid = static_cast<std::uint32_t>(getpid());
            opened.header().process_start = ProcessIdentity::self().start;
            if (reboot)
                std::strcpy(opened.header().boot_id, "another boot");
            else
                ++opened.header().process_start;
        }
        CHECK(look_into(spool, 0).state == ProcessState::dead);
        CHECK_EQ(adopted(spool).count("X"), 10);
    }
}

TEST("nothing recorded, nothing written") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] {
        CHECK(recording_thread() != nullptr);  // attached, no more
    });
    const AdoptionResult result = adopt_spool(spool);
    CHECK(result.state == Adopted::finished);
    CHECK_EQ(result.outcome.trace_path, "");
    CHECK(dir.files(".pfw.gz").empty() && dir.files(".spool").empty());
}

TEST("a file that only bears the name that the trace was to have is not touched") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(10); });
    const std::string name = dir.file("trace-" + host_name() + "-1.pfw.gz");
    std::ofstream(name) << "somebody else's";
    {
        const OpenedSpool opened(spool);  // killed between saying the name and making the file
        opened.header().pid = 0x7FFF'FFFF;
        opened.header().trace_paths[0].set(0, name);
    }
    const Trace trace = adopted(spool);
    CHECK(trace.path != name);
    CHECK_EQ(check_complete(trace, "died").number("spans"), 10);
    CHECK_EQ(file_bytes(name), "somebody else's");
}

TEST("an empty file that the dead process had just made becomes its trace") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(10); });
    const std::string name = dir.file("trace-made.pfw.gz");
    std::ofstream{name};
    {
        const OpenedSpool opened(spool);
        opened.header().trace_paths[0].set(0, name);
    }
    CHECK_EQ(adopted(spool).path, name);
    CHECK_EQ(dir.files(".pfw.gz").size(), 1);
}

TEST("a thread whose number is damaged has a track of its own, and no record gets on a strange one") {
    for (const std::uint32_t number : {0u, 0x7FFF'FFFFu, 0x8000'1234u}) {
        const ScratchDir dir;
        const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(10); });
        {
            const OpenedSpool opened(spool);
            REQUIRE(opened.unit(1).kind == UnitKind::thread);
            auto* thread = reinterpret_cast<ThreadBlock*>(&opened.unit(1));
            thread->tid = number;
            records_of(&opened.unit(1))[3].lane = number | 1;
        }
        const AdoptionResult result = adopt_spool(spool);
        CHECK(result.state == Adopted::finished);
        CHECK_EQ(result.damage.size(), 2);
        const Trace trace = read_trace(result.outcome.trace_path);
        const auto spans = trace.of("X");
        CHECK_EQ(spans.size(), 9);
        for (const TraceEvent& e : spans) CHECK(e.tid > 1u << 22 && e.tid < first_task_lane);
    }
}

TEST("several processors write the same trace as one") {
    cpu_set_t all, one;
    REQUIRE_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) SKIP("there is one processor");
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    for (const Compression compression : {Compression::gzip, Compression::zstd, Compression::none}) {
        const ScratchDir dir;
        TraceSettings settings = unwritten(dir.settings());
        settings.compression = compression;
        settings.block_bytes = 10'000;
        const std::string spool = leave_spool(dir, settings, [] { record(20'000); });
        // A time that cannot be: until when the process lived is reckoned by clocks, to a microsecond or two.
        fs::last_write_time(spool, fs::file_time_type::clock::now() + std::chrono::hours(1));
        std::map<std::string, std::pair<std::string, fs::file_time_type>> left;
        for (const std::string& path : dir.files())
            left[path] = {file_bytes(path), fs::last_write_time(path)};
        const std::string several = adopted(spool).path;
        const std::string by_several = file_bytes(several);
        fs::remove(several);
        for (const auto& [path, file] : left) {
            std::ofstream(path, std::ios::binary) << file.first;
            fs::last_write_time(path, file.second);
        }
        REQUIRE_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        const Trace trace = adopted(spool);
        REQUIRE_EQ(sched_setaffinity(0, sizeof all, &all), 0);
        CHECK_EQ(check_complete(trace, "died").number("spans"), 20'000);
        CHECK(file_bytes(trace.path) == by_several);
    }
}

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
