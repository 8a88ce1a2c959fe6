// What is seen of a process from its spool: while it records, when it has died, and when the file is not
// what it should be.
#include "dftrace/reading/live_spool.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
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

// The bytes of the spool of a process that was killed inside of two spans.
std::string dead_spool(const ScratchDir& dir) {
    in_child([&] {
        start_run(quiet_settings(dir));
        EventName outer("pipeline", "train"), inner("compute", "forward");
        recording_thread();
        const std::uint32_t args = current_session()->put_arguments(",\"step\":7").value_or(0);
        SpanScope a(outer, args);
        for (int i = 0; i < 2500; ++i) SpanScope b(inner, args);
        SpanScope c(inner, args);
        a.leak();
        c.leak();
        kill(getpid(), SIGKILL);
    });
    return file_bytes(dir.only(".spool"));
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

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

TEST("steps and epochs beside a thread take none of its time, and all else does") {
    const ScratchDir dir;
    start_run(quiet_settings(dir));
    Thread* thread = recording_thread();
    const std::uint64_t begun = thread->tick();
    EventName epoch("pipeline", "epoch"), step("pipeline", "step"), train("pipeline", "train"),
        reduce("comm", "all_reduce"), forward("compute", "forward");
    struct Put {
        EventName& name;
        std::uint32_t lane;
        std::uint64_t parent;
        std::uint8_t flags;
        std::uint64_t start, end;
    };
    while (thread->tick() < begun + 1000) std::this_thread::yield();
    constexpr std::uint32_t lane = 0x40000000;
    const std::vector<Put> puts{
        {epoch, lane, 0, 0, 0, 1000},
        {step, lane + 1, 0, 0, 10, 100},
        {step, lane + 1, 0, 0, 100, 200},              // begins where one ends
        {step, 0, 0, RecordFlag::overlaps, 210, 240},  // ended behind another
        {step, 0, 0, 0, 250, 300},                     // on the thread's own track
        {step, lane + 1, 77, 0, 310, 350},             // inside of a span
        {train, lane + 1, 0, 0, 360, 400},             // of another name
        {reduce, lane + 2, 0, 0, 410, 450},            // goes on beside the thread
        {step, lane + 3, 0, 0, 500, 600},              // of a task, with
        {forward, lane + 3, 78, 0, 520, 560},          // this inside
    };
    for (const Put& put : puts) {
        Record* record = thread->reserve();
        REQUIRE(record != nullptr);
        *record = {};
        record->id = thread->new_id();
        record->parent = put.parent;
        record->start = begun + put.start;
        record->end = begun + put.end;
        record->node = put.name.in(*thread);
        record->lane = put.lane;
        record->kind = Kind::span;
        record->flags = put.flags;
        thread->commit();
    }
    const ClockMap clock = SpoolCopy(dir.only(".spool")).clock();
    const auto ns = [&](std::uint64_t from, std::uint64_t to) {
        return clock.to_ns(begun + to) - clock.to_ns(begun + from);
    };
    std::map<std::string, std::uint64_t> told, expected;
    const LiveSpool seen = look(dir);
    for (const auto& [name, spent] : only_thread(seen).self_ns) told[name->name] += spent;
    expected["step"] = ns(250, 300) + ns(310, 350) + ns(500, 520) + ns(560, 600);
    expected["train"] = ns(360, 400);
    expected["all_reduce"] = ns(410, 450);
    expected["forward"] = ns(520, 560);
    CHECK(told == expected);
    finish_run({"finalize"});
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

TEST("a spool may be cut while it is read") {
    const ScratchDir dir;
    const std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    write_file(path, bytes);
    const SpoolCopy copy(path);
    const auto units = copy.units();
    REQUIRE(units.size() > 3);
    REQUIRE_EQ(truncate(path.c_str(), 100), 0);
    std::vector<Record> records;
    for (const UnitFacts& unit : units) {
        CHECK(!copy.records(unit, records));
        CHECK(!copy.stack(unit));
    }
    Texts wanted{{1, ""}};
    copy.fill_names(units, wanted);
    CHECK_EQ(wanted.at(1), "");
}

TEST("a huge file that says it is a spool is soon done with") {
    const ScratchDir dir;
    std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    const std::uint32_t most = UINT32_MAX;
    std::memcpy(bytes.data() + offsetof(SpoolHeader, units), &most, sizeof most);
    write_file(path, bytes);
    REQUIRE_EQ(truncate(path.c_str(), off_t{1} << 42), 0);
    const LiveSpool seen = look_into(path, a_minute_ns);
    CHECK_EQ(seen.threads.size(), 1);
}

TEST("names and arguments that are no JSON are not shown") {
    const ScratchDir dir;
    std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    for (const auto& [text, other] :
         {std::pair<std::string, std::string>{"\"name\":\"forward\"", "\"name\":\"for\\ward\""},
          {",\"step\":7", ",\"step\":}"}}) {
        const std::size_t at = bytes.find(text);
        REQUIRE(at != std::string::npos);
        bytes.replace(at, text.size(), other.substr(0, text.size()));
    }
    write_file(path, bytes);
    const LiveSpool seen = look_into(path, a_minute_ns);
    REQUIRE_EQ(seen.threads.size(), 1);
    REQUIRE_EQ(seen.threads[0].open.size(), 2);
    CHECK((seen.threads[0].open[0].name == LiveName{"train", "pipeline"}));
    CHECK(!seen.threads[0].open[1].name);
    CHECK_EQ(seen.threads[0].open[1].args, "");
}
