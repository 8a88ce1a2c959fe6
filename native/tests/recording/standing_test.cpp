// A thread stands still in the middle of a record, with all locks that it holds there, and others go on.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "standing_room.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

// Fills the rest of any unit.
const std::string large(40'000, 'x');

struct Place {
    const char* name;
    bool attached;  // before it stands
    std::function<std::uint64_t(EventName&)> record;
};

// What takes a unit: a thread's first record, records, names, and snapshots of arguments.
const Place places[] = {
    {"first record", false, [](EventName& name) { return record_spans(name, 1); }},
    {"record", true, [](EventName& name) { return record_spans(name, 3000); }},
    {"name", true,
     [](EventName&) {
         static std::atomic<int> made{0};
         std::uint64_t stored = 0;
         for (int i = 0; i < 3; ++i) {
             EventName fresh("standing", std::to_string(++made) + large);
             stored += record_spans(fresh, 1);
         }
         return stored;
     }},
    {"snapshot", true,
     [](EventName& name) {
         std::uint64_t stored = 0;
         for (int i = 0; i < 3; ++i) stored += record_now(Kind::instant, name, ",\"large\":\"" + large + '"');
         return stored;
     }},
};

TraceSettings quiet(const ScratchDir& dir, bool flight_recorder) {
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 3'600'000;
    settings.flight_recorder = flight_recorder;
    return settings;
}

std::uint64_t events_of(const Outcome& outcome) {
    const Trace trace = read_trace(outcome.trace_path);
    const Footer footer = check_complete(trace, "finalize");
    CHECK_EQ(footer.number("dropped"), 0);
    std::uint64_t dumps = 0;
    trace.each([&](const TraceEvent& e) { dumps += e.name == "dump"; });
    return footer.number("events") - dumps;
}

}  // namespace

TEST("a process is forked, and its session flushed and dumped, while a thread stands in a record") {
    for (const bool flight_recorder : {false, true})
        for (const Place& place : places) {
            const ScratchDir dir;
            EventName name("standing", "span");
            start_run(quiet(dir, flight_recorder));
            std::atomic<std::uint64_t> stored{record_spans(name, 1)};
            const std::shared_ptr<Session> held = held_session();
            auto room = std::make_unique<StandingRoom>();
            std::thread standing([&] {
                if (place.attached) stored += record_spans(name, 1);
                room->stand_here();
                stored += place.record(name);
            });
            room->wait_for_a_thread();
            CHECK(in_child([&] {
                CHECK(current_session() == nullptr && held_session() == nullptr);
#ifdef __SANITIZE_THREAD__  // which knows no threads in forked children
                CHECK_EQ(finish_run({"finalize"}).trace_path, "");
#else
                std::uint64_t here = 0;
                for (const Place& each : places) here += each.record(name);
                CHECK_EQ(current_session()->dump("in the child"), 0);
                CHECK_EQ(events_of(finish_run({"finalize"})), here);
#endif
            }));
            // The drain thread may have to wait for the one that stands: whoever has a limit goes on.
            for (const char* reason : {"flush", "dump"}) {
                const int error = held->dump(reason, nullptr, std::chrono::milliseconds(1));
                CHECK(error == 0 || error == ETIMEDOUT);
            }
            CHECK(held->header().units.load() > 1 && !held->spool_path().empty());
            std::thread flushing([&] { CHECK_EQ(held->flush(), 0); });
            room.reset();
            standing.join();
            flushing.join();
            CHECK_EQ(held->dump("at the end"), 0);
            CHECK_EQ(events_of(finish_run({"finalize"})), stored.load());
        }
}

TEST("a run is completed while a thread stands in the first record of the next") {
    for (const bool flight_recorder : {false, true}) {
        const ScratchDir first_dir, second_dir;
        EventName name("standing", "span");
        start_run(quiet(first_dir, flight_recorder));
        record_spans(name, 10);
        const std::shared_ptr<Session> first = held_session();
        CHECK_EQ(first->dump("asked"), 0);
        const std::uint64_t stopped = stop_run();
        start_run(quiet(second_dir, flight_recorder));
        record_spans(name, 1);
        auto room = std::make_unique<StandingRoom>();
        std::thread standing([&] {
            room->stand_here();
            record_spans(name, 5);
        });
        room->wait_for_a_thread();
        Outcome outcome;
        std::thread completing([&] { outcome = complete_run({"finalize"}, stopped); });
        CHECK_EQ(first->flush(), 0);
        CHECK(first->spool_bytes_used() > 0);
        room.reset();
        completing.join();
        standing.join();
        CHECK_EQ(events_of(outcome), 10);
        CHECK_EQ(current_session()->dump("asked"), 0);
        CHECK_EQ(events_of(finish_run({"finalize"})), 6);
        CHECK_EQ(first->header().finalized.load(), 1);
    }
}
