// A run begins, records, is flushed, ends, and can be followed by another.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dftrace/reading/adoption.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

// What the marker at a path says of a spool.
std::string marker_of(const std::string& spool, const std::string& marker) {
    struct stat info;
    REQUIRE(stat(marker.c_str(), &info) == 0);
    return spool + "\n" + marker_place() + " " + std::to_string(info.st_ino) + " " +
           std::to_string(info.st_dev) + "\n";
}

}  // namespace

TEST("a run in which nothing is recorded leaves nothing behind") {
    const ScratchDir dir;
    start_run(dir.settings());
    CHECK(run_is_on());
    CHECK(current_session() == nullptr);
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.trace_path, "");
    CHECK_EQ(outcome.error, "");
    CHECK(!run_is_on());
    CHECK(dir.files().empty());
}

TEST("without a run nothing is recorded, and ending it again is nothing") {
    CHECK(recording_thread() == nullptr);
    EventName name("life", "inert");
    SpanScope span(name);
    CHECK(!span.recording());
    CHECK_EQ(finish_run({"finalize"}).trace_path, "");
}

TEST("one run at a time") {
    const ScratchDir dir;
    start_run(dir.settings());
    CHECK_THROWS(std::logic_error, start_run(dir.settings()));
    CHECK(run_is_on());
    finish_run({"finalize"});
}

TEST("every kind of event, in one trace, in the order in which it was recorded") {
    for (const auto compression : {Compression::gzip, Compression::zstd, Compression::none}) {
        const ScratchDir dir;
        TraceSettings settings = dir.settings();
        settings.compression = compression;
        start_run(settings);
        EventName step("train", "step"), mark("instant", "mark"), loss("counter", "loss"),
            arrow("flow", "flow"), epoch("dftracer", "CM");
        const std::uint32_t error = intern_exception_type("ValueError");
        Thread* thread = recording_thread();
        REQUIRE(thread != nullptr);
        thread->session->define_names(error);
        const std::uint32_t args = thread->session->put_arguments(",\"epoch\":1");
        std::uint64_t outer_id = 0;
        {
            SpanScope outer(step, args);
            outer_id = outer.id();
            record_now(Kind::instant, mark, ",\"lr\":0.1");
            record_now(Kind::counter, loss, ",\"loss\":0.5");
            record_now(Kind::flow_out, arrow, {}, 4711);
            record_now(Kind::metadata, epoch, ",\"name\":\"epoch.start\",\"value\":\"1\"");
            SpanScope(step).close({error, 17, RecordFlag::has_count});
            record_now(Kind::flow_in, arrow, {}, 4711);
        }
        const Outcome outcome = finish_run({"exit"});
        CHECK_EQ(outcome.error, "");
        CHECK_EQ(outcome.trace_path, settings.prefix + "-" + settings.host + "-" + std::to_string(getpid()) +
                                         suffix_of(compression));
        const Trace trace = read_trace(outcome.trace_path);
        const Footer footer = check_complete(trace, "exit");
        CHECK_EQ(footer.number("events"), 7);
        std::vector<TraceEvent> mine;
        trace.each([&](const TraceEvent& e) {
            if (e.has_id) mine.push_back(e);
        });
        REQUIRE_EQ(mine.size(), 7);
        const char* order[] = {"i", "C", "s", "M", "X", "f", "X"};
        for (std::size_t i = 0; i < mine.size(); ++i) {
            CHECK_EQ(mine[i].ph, order[i]);
            CHECK_EQ(mine[i].pid, getpid());
            CHECK_EQ(mine[i].tid, gettid());
        }
        CHECK_EQ(mine[0].number("p_idx"), outer_id);
        CHECK_EQ(mine[0].number("level"), 2);
        CHECK_EQ(mine[0].arg("lr"), "0.1");
        CHECK_EQ(mine[1].args.size(), 1);
        CHECK_EQ(mine[2].id, 4711);
        CHECK_EQ(mine[4].arg("error"), "\"ValueError\"");
        CHECK_EQ(mine[4].arg("count"), "17");
        CHECK_EQ(mine[6].arg("epoch"), "1");
        CHECK_EQ(mine[6].number("p_idx"), 0);
    }
}

TEST("what was flushed is in the file while the run goes on") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 10'000;
    start_run(settings);
    EventName name("life", "flushed");
    for (std::size_t i = 1; i <= 20; ++i) {
        { SpanScope span(name); }
        CHECK_EQ(current_session()->flush(), 0);
        CHECK_EQ(read_trace(dir.only(".pfw.gz")).count("X"), i);
    }
    CHECK_EQ(dir.files(".spool").size(), 1);
    const std::string marker = dir.only(".spool-at");
    CHECK_EQ(file_bytes(marker), marker_of(dir.only(".spool"), marker));
    check_complete(read_trace(finish_run({"finalize"}).trace_path), "finalize");
    CHECK_EQ(dir.files().size(), 1);
}

TEST("lines reach the file by themselves, block by block") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.block_bytes = 2000;
    settings.flush_interval_ms = 1;
    start_run(settings);
    EventName name("life", "alone");
    { SpanScope span(name); }
    // Not by a wake-up: by the drain thread's own clock.
    while (current_session()->header().write_number.load() < 3) SpanScope span(name);
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    check_complete(trace, "finalize");
    CHECK(trace.blocks > 3);
}

TEST("a run may end while another thread waits for a flush") {
    for (int i = 0; i < 20; ++i) {
        const ScratchDir dir;
        TraceSettings settings = dir.settings();
        settings.flush_interval_ms = 100'000;
        start_run(settings);
        EventName name("life", "flush");
        for (int k = 0; k < 300; ++k) SpanScope span(name);
        const std::shared_ptr<Session> session = held_session();
        REQUIRE(session != nullptr);
        std::thread flusher([session] { CHECK_EQ(session->flush(), 0); });
        // Nobody else writes this early: the flush has begun.
        while (session->header().write_number.load() == 0) std::this_thread::yield();
        const Outcome outcome = finish_run({"finalize"});
        flusher.join();
        CHECK_EQ(check_complete(read_trace(outcome.trace_path), "finalize").number("spans"), 300);
    }
}

TEST("a second run in one process is a second file with ids and names of its own") {
    const ScratchDir dir;
    EventName name("life", "twice");
    std::vector<std::string> paths;
    for (int i = 0; i < 3; ++i) {
        start_run(dir.settings());
        for (int k = 0; k < 10; ++k) SpanScope span(name);
        std::thread([&] { SpanScope span(name); }).join();
        paths.push_back(finish_run({"finalize"}).trace_path);
    }
    CHECK_EQ(dir.files().size(), 3);
    for (const std::string& path : paths) {
        const Trace trace = read_trace(path);
        check_complete(trace, "finalize");
        CHECK_EQ(trace.count("X"), 11);
        for (const TraceEvent& e : trace.of("X")) CHECK_EQ(e.name, "twice");
    }
    CHECK(paths[1].find("-1.pfw.gz") != std::string::npos);
}

TEST("a span that outlives its run is told as unfinished there and not at all in the next") {
    const ScratchDir dir;
    EventName name("life", "outlives");
    start_run(dir.settings());
    SpanScope span(name);
    const Trace first = read_trace(finish_run({"finalize"}).trace_path);
    CHECK_EQ(first.count("B"), 1);
    start_run(dir.settings());
    { SpanScope other(name); }
    CHECK(!span.close());
    const Trace second = read_trace(finish_run({"finalize"}).trace_path);
    check_complete(second, "finalize");
    CHECK_EQ(second.count("X"), 1);
    CHECK_EQ(second.count("B"), 0);
}

TEST("the process id that was asked for stands in the name and in the lines") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.shown_pid = 7;
    settings.epoch_us = true;
    start_run(settings);
    EventName name("life", "pid");
    { SpanScope span(name); }
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.trace_path, settings.prefix + "-" + settings.host + "-7.pfw.gz");
    const Trace trace = read_trace(outcome.trace_path);
    for (const TraceEvent& e : trace.events()) CHECK_EQ(e.pid, 7);
}

TEST("threads bear the names that the caller's language gives them") {
    const ScratchDir dir;
    set_thread_namer([] { return std::string("worker \"\xFF\""); });
    start_run(dir.settings());
    EventName name("life", "named");
    { SpanScope span(name); }
    const Trace trace = read_trace(finish_run({"finalize"}).trace_path);
    set_thread_namer(nullptr);
    std::string seen;
    for (const TraceEvent& e : trace.of("M"))
        if (e.name == "thread_name") seen = json_text(e.arg("name"));
    CHECK_EQ(seen, "worker \"\xEF\xBF\xBD\"");
}

TEST("a spool that cannot be made is told once, and the process goes on without a trace") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.spool_dir = dir.file("missing");
    CHECK(in_child([&] {
        CHECK(std::freopen(dir.file("told").c_str(), "w", stderr) != nullptr);
        start_run(settings);
        EventName name("life", "no spool");
        for (int i = 0; i < 5; ++i) CHECK(!SpanScope(name).recording());
        CHECK_EQ(finish_run({"finalize"}).trace_path, "");
        std::fflush(stderr);
    }));
    const std::string told = file_bytes(dir.file("told"));
    CHECK(told.find("dftrace: nothing is recorded") == 0);
    CHECK_EQ(told.find('\n'), told.size() - 1);
    CHECK_EQ(dir.files().size(), 1);
}

TEST("without a spool directory of its own a run finds one, and cleans up there") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.spool_dir.clear();
    start_run(settings);
    EventName name("life", "somewhere");
    { SpanScope span(name); }
    const std::string spool = current_session()->spool_path();
    CHECK(std::filesystem::exists(spool));
    CHECK_EQ(file_bytes(dir.only(".spool-at")), marker_of(spool, dir.only(".spool-at")));
    CHECK_EQ(finish_run({"finalize"}).error, "");
    CHECK(!std::filesystem::exists(spool));
}

TEST("a run is ended by its number, once, and whoever comes late gets the same outcome") {
    const ScratchDir dir;
    EventName name("life", "numbered");
    const std::uint64_t first = start_run(dir.settings());
    CHECK_EQ(run_number(), first);
    { SpanScope span(name); }
    std::vector<std::string> paths(4);
    std::vector<std::thread> threads;
    for (std::string& path : paths)
        threads.emplace_back([&path, first] { path = finish_run({"finalize"}, first).trace_path; });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& path : paths) CHECK_EQ(path, paths.front());
    check_complete(read_trace(paths.front()), "finalize");
    CHECK_EQ(run_number(), 0);

    const std::uint64_t second = start_run(dir.settings());
    CHECK(second != first);
    CHECK_EQ(finish_run({"finalize"}, first).trace_path, paths.front());
    CHECK_EQ(run_number(), second);
    CHECK_EQ(finish_run({"finalize"}, second).trace_path, "");
}
