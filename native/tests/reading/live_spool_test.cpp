// What is seen of a process from its spool: while it records, when it has died, and when the file is not
// what it should be.
#include "dftrace/reading/live_spool.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "between_reads.hpp"
#include "check.hpp"
#include "dftrace/reading/spool_copy.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

constexpr std::uint64_t a_minute_ns = 60'000'000'000;

LiveSpool look(const ScratchDir& dir) { return look_into(dir.only(".spool"), a_minute_ns); }

const LiveThread& only_thread(const LiveSpool& spool) {
    REQUIRE_EQ(spool.threads.size(), 1);
    return spool.threads.front();
}

// The drain thread does nothing unless it is asked.
TraceSettings quiet_settings(const ScratchDir& dir) {
    TraceSettings s = dir.settings();
    s.flush_interval_ms = 1'000'000;
    return s;
}

}  // namespace

TEST("open spans are seen from the outermost to the innermost, with names and arguments") {
    const ScratchDir dir;
    start_run(quiet_settings(dir));
    EventName train("pipeline", "train"), forward("compute", "forward"), step("compute", "step");
    REQUIRE(recording_thread() != nullptr);
    const std::uint32_t args = current_session()->put_arguments(",\"epoch\":1,\"step\":7");
    {
        SpanScope outer(train);
        SpanScope inner(forward, args);
        { SpanScope ended(step, args); }
        const LiveSpool seen = look(dir);
        CHECK_EQ(seen.pid, getpid());
        CHECK(seen.state == ProcessState::alive);
        CHECK_EQ(seen.run, dir.settings().run);
        CHECK(seen.started_ns < seen.now_ns);
        const LiveThread& thread = only_thread(seen);
        CHECK_EQ(thread.tid, gettid());
        CHECK_EQ(thread.records, 1);
        REQUIRE_EQ(thread.open.size(), 2);
        CHECK((thread.open[0].name == LiveName{"train", "pipeline"}));
        CHECK_EQ(thread.open[0].args, "");
        CHECK((thread.open[1].name == LiveName{"forward", "compute"}));
        CHECK_EQ(thread.open[1].args, ",\"epoch\":1,\"step\":7");
        CHECK_EQ(thread.open[1].parent, thread.open[0].id);
        CHECK_EQ(thread.open[1].level, 2);
        CHECK(thread.open[0].start_ns < thread.open[1].start_ns);
        REQUIRE(thread.last_ns.has_value());
        CHECK(thread.open[1].start_ns < *thread.last_ns && *thread.last_ns <= seen.now_ns);
        REQUIRE_EQ(thread.newest_args.size(), 1);
        CHECK_EQ(thread.newest_args[0].second, ",\"epoch\":1,\"step\":7");
        CHECK_EQ(thread.newest_args[0].first, *thread.last_ns);
    }
    CHECK(only_thread(look(dir)).open.empty());
    finish_run({"finalize"});
}

TEST("spans deeper than the block tells of are counted, those of tasks are told") {
    const ScratchDir dir;
    start_run(quiet_settings(dir));
    EventName name("open", "deep"), task("open", "task");
    std::vector<std::unique_ptr<SpanScope>> open;
    for (std::uint32_t i = 0; i < max_open_spans + 9; ++i) open.push_back(std::make_unique<SpanScope>(name));
    Thread* thread = recording_thread();
    const std::uint32_t lane = thread->take_lane();
    const int later =
        thread->take_task_slot({thread->new_id(), thread->tick(), 0, task.in(*thread), 0, lane, 1, 1});
    const std::uint64_t id = thread->new_id();
    thread->take_task_slot({id, thread->tick(), 0, task.in(*thread), 0, lane, 1, 1});
    thread->give_task_slot(later);
    const LiveSpool seen = look(dir);
    CHECK_EQ(only_thread(seen).depth, max_open_spans + 9);
    CHECK_EQ(only_thread(seen).open.size(), max_open_spans);
    REQUIRE_EQ(only_thread(seen).tasks.size(), 1);
    CHECK_EQ(only_thread(seen).tasks[0].id, id);
    CHECK((only_thread(seen).tasks[0].name == LiveName{"task", "open"}));
    while (!open.empty()) open.pop_back();
    finish_run({"finalize"});
}

TEST("what is recorded has ended, though it still stands among the open spans") {
    const ScratchDir dir;
    start_run(quiet_settings(dir));
    EventName outer("live", "outer"), inner("live", "inner");
    SpanScope a(outer);
    SpanScope b(inner);
    Thread* thread = recording_thread();
    Record* record = thread->reserve();
    REQUIRE(record != nullptr);
    *record = {};
    record->id = b.id();
    record->start = thread->top()->start;
    record->end = thread->tick();
    record->node = inner.in(*thread);
    record->kind = Kind::span;
    thread->commit();
    const LiveSpool seen = look(dir);
    REQUIRE_EQ(only_thread(seen).open.size(), 1);
    CHECK_EQ(only_thread(seen).open[0].id, a.id());
    b.leak();
    thread->pop(b.id());
    a.close();
    finish_run({"finalize"});
}

TEST("of a thread that records as fast as it can only what is true is seen") {
    const ScratchDir dir;
    TraceSettings s = dir.settings();
    s.flush_interval_ms = 5;
    s.spool_bytes = 12 * unit_bytes;
    s.wait_on_overflow = true;
    start_run(s);
    std::atomic<std::uint64_t> stored{0};
    std::jthread busy([&](const std::stop_token& stop) {
        EventName outer("live", "outer"), middle("live", "middle"), inner("live", "inner");
        SpanScope a(outer);
        while (!stop.stop_requested()) {
            SpanScope b(middle);
            for (int i = 0; i < 3; ++i) {
                { SpanScope c(inner); }
                stored.fetch_add(1);
            }
            b.close();
            stored.fetch_add(1);
        }
    });
    while (stored.load() < 5000) std::this_thread::yield();
    const std::vector<std::string> names{"outer", "middle", "inner"};
    std::uint64_t records = 0, spans = 0, covered = 0;
    for (std::uint64_t round = 0; round < scaled(1500); ++round) {
        const std::uint64_t least = stored.load();
        const LiveSpool seen = look_into(dir.only(".spool"), round % 50 ? 100'000 : a_minute_ns);
        const std::uint64_t most = stored.load() + 1;  // one may be stored and not counted yet
        const LiveThread& thread = only_thread(seen);
        CHECK(thread.records >= least && thread.records <= most);
        CHECK(thread.records >= records);
        records = thread.records;
        REQUIRE(!thread.open.empty() && thread.open.size() <= 3);
        for (std::size_t i = 0; i < thread.open.size(); ++i) {
            const LiveSpan& span = thread.open[i];
            CHECK((span.name == LiveName{names[i], "live"}));
            CHECK_EQ(span.level, i + 1);
            CHECK_EQ(span.parent, i ? thread.open[i - 1].id : 0);
            if (i) CHECK(thread.open[i - 1].start_ns <= span.start_ns);
        }
        spans += thread.open.size();
        if (thread.covered_ns == 0) continue;  // it had just begun with another unit
        std::uint64_t spent = 0;
        for (const auto& [name, ns] : thread.self_ns) {
            CHECK(name && name->category == "live");
            spent += ns;
        }
        // The outermost span is open all the time.
        if (thread.covered_ns < seen.now_ns - seen.started_ns) {
            CHECK_EQ(spent, thread.covered_ns);
            covered += 1;
        }
    }
    CHECK(spans > scaled(1500));  // more than the outermost one was seen
    CHECK(covered > 0);
    busy.request_stop();
    busy.join();
    CHECK_EQ(finish_run({"finalize"}).error, "");
}

TEST("a thread whose newest unit is written and used again while the units are listed") {
    const ScratchDir dir;
    start_run(quiet_settings(dir));
    EventName name("live", "numbered");
    const auto newest = [&] {
        const SpoolCopy copy(dir.only(".spool"));
        std::vector<UnitFacts> units = copy.units();
        std::erase_if(units, [](const UnitFacts& unit) { return unit.kind != UnitKind::ring; });
        return units.empty() ? 0 : std::ranges::max(units, {}, &UnitFacts::sequence).index;
    };
    std::uint64_t recorded = 0;
    const auto fill = [&](const std::function<bool()>& enough) {
        for (; !enough(); ++recorded) SpanScope span(name);
    };
    fill([&] { return recorded && recorded % 512 == 0 && newest() >= 5; });
    CHECK_EQ(current_session()->flush(), 0);
    const std::uint64_t before = recorded;
    const std::uint32_t left = newest();
    const BetweenReads meanwhile(std::int64_t{left} * unit_bytes, [&] {
        fill([&, thread = recording_thread()] { return recorded >= before + 2 * 1024; });
        CHECK_EQ(current_session()->flush(), 0);
    });
    const LiveSpool seen = look(dir);
    const LiveThread& thread = only_thread(seen);
    CHECK(recorded > before);
    CHECK_EQ(thread.records, recorded);
    finish_run({"finalize"});
}

TEST("self times are those of the trace, nanosecond for nanosecond") {
    const ScratchDir dir;
    start_run(quiet_settings(dir));
    EventName outer("outer", "a"), middle("middle", "b"), inner("inner", "c");
    SpanScope a(outer);
    const auto record = [&] {
        for (int i = 0; i < 1500; ++i) {
            SpanScope b(middle);
            for (int k = 0; k < i % 4; ++k) SpanScope c(inner);
        }
        return epoch_ns();
    };
    const std::uint64_t half = record(), most = record();
    SpanScope open(middle);
    const LiveSpool seen = look(dir);
    // One whose window begins among the spans of the second half.
    LiveSpool part;
    do part = look_into(dir.only(".spool"), epoch_ns() - half);
    while (part.now_ns - only_thread(part).covered_ns > half + (most - half) / 2);
    open.close();
    a.close();
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    const auto expected = [&](std::uint64_t from, std::uint64_t to) {
        std::map<std::string, std::uint64_t> spent;
        std::map<std::uint64_t, std::string> category;
        for (const TraceEvent& e : trace.of("X")) category[e.id] = std::string(e.cat);
        for (const TraceEvent& e : trace.of("X")) {
            const std::uint64_t base = dir.settings().time_base_us * 1000;
            const std::uint64_t start = std::max(base + e.ts, from);
            const std::uint64_t end = std::min(base + e.ts + e.dur, to);
            if (start >= end) continue;
            spent[std::string(e.cat)] += end - start;
            if (e.number("p_idx")) spent[category.at(e.number("p_idx"))] -= end - start;
        }
        return spent;
    };
    for (const LiveSpool* spool : std::vector<const LiveSpool*>{&seen, &part}) {
        const LiveThread& thread = only_thread(*spool);
        const std::uint64_t from = spool == &seen ? 0 : spool->now_ns - thread.covered_ns;
        std::map<std::string, std::uint64_t> told;
        for (const auto& [name, ns] : thread.self_ns) told[name->category] += ns;
        CHECK_EQ(told.size(), 3);
        CHECK(told == expected(from, spool->now_ns));
        std::uint64_t ended = 0;
        for (const TraceEvent& e : trace.of("X")) {
            const std::uint64_t end = dir.settings().time_base_us * 1000 + e.ts + e.dur;
            ended += end >= from && end <= spool->now_ns;
        }
        CHECK_EQ(thread.events, ended);
    }
}

TEST("of a process that has died the last sign of life is told") {
    const ScratchDir dir;
    CHECK(in_child([&] {
              start_run(quiet_settings(dir));
              EventName train("pipeline", "train"), wait("comm", "all_reduce");
              SpanScope outer(train);
              { SpanScope ended(wait); }
              SpanScope inner(wait);
              outer.leak();
              inner.leak();
              kill(getpid(), SIGKILL);
          }) == false);
    const LiveSpool seen = look(dir);
    CHECK(seen.state == ProcessState::dead);
    const LiveThread& thread = only_thread(seen);
    REQUIRE_EQ(thread.open.size(), 2);
    CHECK((thread.open[1].name == LiveName{"all_reduce", "comm"}));
    CHECK_EQ(seen.now_ns, thread.open[1].start_ns);
    CHECK(seen.now_ns < seen.present_ns);
}

TEST("of a process on another host nothing is judged") {
    const ScratchDir dir;
    TraceSettings s = quiet_settings(dir);
    s.host = "elsewhere";
    start_run(s);
    EventName name("live", "x");
    { SpanScope span(name); }
    CHECK(look(dir).state == ProcessState::on_other_host);
    finish_run({"finalize"});
}
