// Spans that are open while a flight recorder is dumped, and what is told of them afterwards.
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/writing/open_lines.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

TraceSettings recorder(const ScratchDir& dir, Compression compression, std::size_t units = 40) {
    TraceSettings settings = dir.settings();
    settings.compression = compression;
    settings.flight_recorder = true;
    settings.spool_bytes = units * unit_bytes;
    return settings;
}

int dump() { return current_session()->dump("asked"); }

// Enough that everything before is let go.
void record_many(EventName& name) {
    for (int n = 0; n < 50'000; ++n) SpanScope span(name);
}

// What the trace says of each span of these names: X, B, ...; more than once if it is told twice.
std::map<std::string, std::string> told(const Trace& trace) {
    std::map<std::string, std::string> found;
    trace.each([&](const TraceEvent& e) {
        if (e.cat != "open") return;
        found[std::string(e.name)] += e.ph;
        if (e.ph == "B") CHECK_EQ(e.arg("unfinished"), "true");
    });
    return found;
}

using Told = std::map<std::string, std::string>;

constexpr Compression all_codecs[] = {Compression::none, Compression::gzip, Compression::zstd};

}  // namespace

TEST("every dump has the spans that are open, and tells each span once") {
    for (const Compression compression : all_codecs) {
        const ScratchDir dir;
        start_run(recorder(dir, compression));
        EventName train("open", "train"), reduce("open", "reduce"), later("open", "later");
        SpanScope outer(train);
        std::string path;
        {
            const SpanScope hangs(reduce);
            CHECK_EQ(dump(), 0);
            path = current_session()->header().trace_paths[0].get();
            CHECK(told(read_trace(path)) == (Told{{"train", "B"}, {"reduce", "B"}}));
            CHECK_EQ(dump(), 0);
            CHECK(told(read_trace(path)) == (Told{{"train", "B"}, {"reduce", "B"}}));
        }
        SpanScope other(later);
        CHECK_EQ(dump(), 0);
        CHECK(told(read_trace(path)) == (Told{{"train", "B"}, {"reduce", "X"}, {"later", "B"}}));
        outer.close();
        other.leak();
        // Nobody asks for another dump: of what was told as open the end is told, and of no more.
        EventName unasked("open", "unasked");
        SpanScope(unasked).close();
        const auto [outcome, trace, footer] = finished();
        CHECK(told(trace) == (Told{{"train", "X"}, {"reduce", "X"}, {"later", "B"}}));
        CHECK_EQ(footer.number("unfinished"), 1);
        CHECK_EQ(footer.told("overwritten"), 1);
        CHECK_EQ(outcome.events, footer.number("events"));
    }
}

TEST("what a dump told of as open stays, though its end was let go") {
    for (const Compression compression : all_codecs) {
        const ScratchDir dir;
        start_run(recorder(dir, compression));
        EventName train("open", "train"), reduce("open", "reduce"), many("many", "many");
        SpanScope outer(train);
        std::uint64_t id = 0;
        {
            const SpanScope hangs(reduce);
            id = hangs.id();
            CHECK_EQ(dump(), 0);
        }
        record_many(many);
        CHECK_EQ(dump(), 0);
        CHECK_EQ(dump(), 0);
        record_many(many);
        outer.close();
        CHECK_EQ(dump(), 0);
        const auto [outcome, trace, footer] = finished();
        CHECK(told(trace) == (Told{{"train", "X"}, {"reduce", "B"}}));
        CHECK_EQ(footer.number("unfinished"), 1);
        const auto lost = trace.of("B");
        REQUIRE_EQ(lost.size(), 1);
        CHECK_EQ(lost[0].id, id);
        // Not on its thread's track: all that the thread did later would lie inside of it.
        CHECK(lost[0].tid >= first_overlap_lane && lost[0].tid < first_logged_lane);
        std::size_t named = 0;
        trace.each([&](const TraceEvent& e) { named += e.name == "thread_name" && e.tid == lost[0].tid; });
        CHECK_EQ(named, 1);
    }
}

TEST("who finishes the trace of a process that was dumped tells each span once, too") {
    for (const Compression compression : all_codecs)
        for (const bool let_go : {false, true}) {
            const ScratchDir dir;
            CHECK(in_child([&] {
                start_run(recorder(dir, compression));
                EventName train("open", "train"), reduce("open", "reduce"), ended("open", "ended"),
                    many("many", "many"), newer("open", "newer");
                SpanScope outer(train);
                {
                    const SpanScope short_one(ended);
                    CHECK_EQ(dump(), 0);
                }
                if (let_go) record_many(many);
                SpanScope hangs(reduce);
                if (!let_go) CHECK_EQ(dump(), 0);
                SpanScope after(newer);
                for (SpanScope* span : {&outer, &hangs, &after}) span->leak();
                _exit(0);
            }));
            const Trace trace = adopted(dir.only(".spool"));
            const Footer footer = check_complete(trace, "died");
            CHECK(told(trace) ==
                  (Told{{"train", "B"}, {"reduce", "B"}, {"newer", "B"}, {"ended", let_go ? "B" : "X"}}));
            CHECK_EQ(footer.number("unfinished"), let_go ? 4 : 3);
        }
}

TEST("a dump that cannot be written whole is made good by the next") {
    const ScratchDir dir;
    TraceSettings settings = recorder(dir, Compression::gzip);
    settings.prefix = dir.file("later/trace");
    start_run(settings);
    EventName train("open", "train"), reduce("open", "reduce");
    const SpanScope outer(train);
    {
        const SpanScope hangs(reduce);
        CHECK_EQ(dump(), ENOENT);
    }
    REQUIRE(mkdir(dir.file("later").c_str(), 0700) == 0);
    CHECK_EQ(dump(), 0);
    const std::string path = current_session()->header().trace_paths[0].get();
    CHECK(told(read_trace(path)) == (Told{{"train", "B"}, {"reduce", "X"}}));
    check_complete(read_trace(finish_run({"finalize"}).trace_path), "finalize");
}

TEST("threads that record while they are dumped are told of as they were") {
    const ScratchDir dir;
    start_run(recorder(dir, Compression::none, 400));
    EventName outer("open", "outer"), inner("busy", "inner");
    REQUIRE(recording_thread() != nullptr);
    // Few enough for the spool: of a span whose record is dropped the end is not known.
    std::atomic<int> busy{3}, dumps{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&] {
            for (int round = 0; round < 3000; ++round) {
                SpanScope around(outer);
                // However quick they are: one dump at least is of them all.
                while (round == 1500 && !dumps) std::this_thread::yield();
                for (int i = 0; i < 5; ++i) SpanScope span(inner);
            }
            --busy;
        });
    while (busy) {
        CHECK_EQ(dump(), 0);
        ++dumps;
    }
    for (auto& thread : threads) thread.join();
    CHECK_EQ(dump(), 0);
    const Trace trace = read_trace(finish_run({"finalize"}).trace_path);
    CHECK_EQ(check_complete(trace, "finalize").number("unfinished"), 0);  // ids are unique as well
}

TEST("of a file's end only whole lines of open spans are taken") {
    OpenLines lines;
    lines.take_in(
        "{\"id\":3,\"name\":\"a\",\"tid\":7,\"ph\":\"B\",\"args\":{}}\n"
        "{\"id\":4,\"name\":\"b\",\"tid\":7,\"ph\":\"X\",\"args\":{}}\n"
        "{\"id\":5,\"name\":\"c,\"tid\":7,\"ph\":\"B\",\"args\":{}}\n"
        "junk\n\n"
        "{\"id\":6,\"name\":\"d\",\"tid\":7,\"ph\":\"B\",\"args\":{}}");
    const auto lost = lines.take_lost();
    REQUIRE_EQ(lost.size(), 1);
    CHECK_EQ(lost.begin()->first, 3);
    CHECK_EQ(track_of(lost.at(3)), 7);
    CHECK_EQ(on_track(lost.at(3), 12), "{\"id\":3,\"name\":\"a\",\"tid\":12,\"ph\":\"B\",\"args\":{}}\n");
    CHECK(lines.empty());
}
