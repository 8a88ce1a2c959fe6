// Memory is refused somewhere in a run: the program goes on, and what is not recorded is counted.
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <latch>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dftrace/recording/retention.hpp"
#include "dftrace/recording/thread_registry.hpp"
#include "refused_memory.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

constexpr char reason[] = "asked for while there is no memory";

// What the threads of a run have seen of their events.
struct Seen {
    std::atomic<std::uint64_t> stored{0};
    std::atomic<std::uint64_t> refused{0};
};

void record(Seen& seen, EventName& name) {
    for (int i = 0; i < 3; ++i) {
        SpanScope outer(name);
        SpanScope inner(name);
        ++(record_now(Kind::instant, name, ",\"with\":\"arguments\"") ? seen.stored : seen.refused);
        ++(inner.close() ? seen.stored : seen.refused);
        ++(outer.close() ? seen.stored : seen.refused);
    }
}

// A run of three threads, with every call that there is.
struct Run {
    Run(const TraceSettings& settings, std::uint64_t granted, std::uint64_t refused)
        : flight_recorder(settings.flight_recorder) {
        EventName name("no memory", "a name that takes memory");
        std::latch begun(1);
        std::vector<std::thread> threads;
        for (int t = 0; t < 2; ++t)
            threads.emplace_back([&] {
                begun.wait();
                record(seen, name);
            });
        {
            const RefusedMemory refusal(granted, refused);
            try {
                number = start_run(settings);
            } catch (const std::bad_alloc&) {
                began_at_once = false;
            }
            if (!began_at_once) CHECK(!run_is_on());
            if (!began_at_once && refused == 1) number = start_run(settings);
            record(seen, name);
            begun.count_down();
            for (std::thread& thread : threads) thread.join();
            if (const std::shared_ptr<Session> held = held_session()) {
                had_session = true;
                header_is_whole = held->header().process_start && held->header().boot_id[0];
                flushed = held->flush();
                dumped = held->dump(reason);
            }
            record(seen, name);
            if (number) complete();
            came = refusal.came();
        }
        if (number && !complete()) CHECK(false);
        CHECK(!run_is_on());
    }
    // Who gets no outcome, there being no memory for it, asks again.
    bool complete() {
        try {
            outcome = finish_run({"finalize"}, number);
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }

    const bool flight_recorder;
    Seen seen;
    std::uint64_t number = 0;
    bool began_at_once = true;
    bool had_session = false;
    bool came = false;
    bool header_is_whole = false;
    int flushed = 0;
    int dumped = 0;
    Outcome outcome;
};

void check_counted(const ScratchDir& dir, const Run& run) {
    CHECK(run.flushed == 0 || run.flushed == ENOMEM);
    CHECK(run.dumped == 0 || run.dumped == ENOMEM);
    if (!run.had_session) {  // which is told
        CHECK_EQ(run.seen.stored.load(), 0);
        CHECK(dir.files().empty());
        return;
    }
    const Outcome& outcome = run.outcome;
    CHECK_EQ(outcome.losses.dropped, run.seen.refused.load());
    if (!outcome.error.empty()) return;
    // Nothing is written of a run in which nothing was stored, or asked for.
    if (!run.seen.stored.load() || (run.flight_recorder && run.dumped)) {
        if (dir.files().empty()) return;
    }
    CHECK_EQ(dir.files().size(), 1);
    const Trace trace = read_trace(dir.only(".pfw.gz"));
    const Footer footer = check_complete(trace, "finalize");
    CHECK_EQ(footer.number("unfinished"), 0);
    CHECK_EQ(footer.number("dropped"), run.seen.refused.load());
    std::uint64_t notes = 0;
    bool told = false;
    trace.each([&](const TraceEvent& e) {
        CHECK(e.name != "unknown");
        notes += e.name == "dump";
        told |= e.name == "dump" && e.arg("reason").find(reason) != std::string_view::npos;
    });
    if (run.flight_recorder && run.dumped == 0) CHECK(told);
    CHECK_EQ(footer.number("events") - notes + footer.told("overwritten"), run.seen.stored.load());
}

TraceSettings small(const ScratchDir& dir, bool flight_recorder, std::uint64_t units = 64) {
    TraceSettings settings = dir.settings();
    settings.flight_recorder = flight_recorder;
    settings.flush_interval_ms = 3'600'000;
    settings.spool_bytes = units * unit_bytes;
    return settings;
}

// One run after the other, in each of which more goes well before `refused` allocations do not.
void refuse_in_each_place(std::uint64_t refused) {
    set_thread_namer([] { return std::string("a thread whose name takes memory"); });
    for (const bool flight_recorder : {false, true}) {
        std::uint64_t granted = 0;
        for (bool came = true; came; ++granted) {
            const ScratchDir dir;
            const int before = check::failures();
            const std::size_t descriptors = open_descriptors();
            {
                const Run run(small(dir, flight_recorder), granted, refused);
                came = run.came;
                check_counted(dir, run);
                if (refused == 1 && run.had_session) {
                    CHECK(run.outcome.error.empty() || run.outcome.error == "no memory" ||
                          run.outcome.events + run.outcome.lost_lines >= run.seen.stored.load());
                    CHECK(run.header_is_whole);
                    CHECK(run.seen.refused.load() <= 1);  // the next event has memory again
                }
            }
            CHECK_EQ(open_descriptors(), descriptors);
            if (check::failures() != before)
                std::printf("  where %llu go well before\n", static_cast<unsigned long long>(granted));
        }
        CHECK(granted > 100);
    }
    set_thread_namer(nullptr);
}

}  // namespace

TEST("each allocation of a run fails once: all that was recorded is in the trace, or counted") {
    refuse_in_each_place(1);
}

TEST("from each allocation of a run on there is no memory: the program goes on, and so does the next run") {
    refuse_in_each_place(~std::uint64_t{0});
}

TEST("units that fill where there is no memory are written, let go or dropped, and each event is counted") {
    for (const bool flight_recorder : {false, true}) {
        const ScratchDir dir;
        start_run(small(dir, flight_recorder, 8));
        EventName name("no memory", "span");
        std::uint64_t stored = SpanScope(name).close(), refused = 0;
        CHECK_EQ(current_session()->flush(), 0);
        {
            const RefusedMemory refusal(0);
            for (int i = 0; i < 20'000; ++i) ++(SpanScope(name).close() ? stored : refused);
        }
        CHECK_EQ(current_session()->flush(), 0);
        const Footer footer = finished().footer;
        CHECK_EQ(footer.number("spans") + footer.told("overwritten"), stored);
        CHECK_EQ(footer.number("dropped"), refused);
        if (flight_recorder) CHECK(footer.number("spans") > 2'000);
    }
}

TEST("a name for which there is no memory is refused, and taken the next time") {
    const auto fresh = [](std::uint64_t n) { return "a name that takes memory, " + std::to_string(n); };
    std::uint64_t granted = 0;
    for (bool came = true; came; ++granted) {
        const std::string name = fresh(granted), type = "Error" + name;
        std::uint32_t number = 0;
        {
            const RefusedMemory refusal(granted, 1);
            try {
                number = intern_name("no memory", name);
            } catch (const std::bad_alloc&) {
            }
            came = refusal.came();
        }
        CHECK_EQ(number == 0, came);
        const std::uint32_t again = intern_name("no memory", name);
        CHECK(again != 0 && (came || again == number));
        CHECK_EQ(interned_json(again), "\"name\":\"" + name + "\",\"cat\":\"no memory\"");
        const RefusedMemory refusal(0);
        CHECK_EQ(intern_exception_type(type), 0);
    }
    CHECK(granted > 2);
}

TEST("a thread for which there is no memory takes no unit, and is not known") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 16 * unit_bytes);
    UnitSupply supply(spool);
    ThreadRegistry threads(nullptr, 1);
    std::size_t known = 0;
    for (std::uint64_t granted = 0; known < 9; ++granted) {
        const std::uint64_t bytes = spool.used_bytes();
        const Thread* thread = nullptr;
        {
            const RefusedMemory refusal(granted, 1);
            thread = threads.attach(supply, 1, "a name that takes memory");
        }
        known += thread != nullptr;
        CHECK_EQ(spool.used_bytes(), bytes + (thread ? unit_bytes : 0));
        {
            const RefusedMemory refusal(0);
            try {
                threads.take_in_new_sources();
            } catch (const std::bad_alloc&) {
                CHECK(thread != nullptr);
            }
        }
        threads.take_in_new_sources();
        CHECK_EQ(threads.sources().size(), known);
        if (thread) granted = 0;
    }
}

TEST("units are given back, and taken again, without memory") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 64 * unit_bytes);
    std::vector<UnitHeader*> taken;
    while (UnitHeader* unit =
               spool.acquire(UnitKind::arguments, 0, static_cast<std::uint32_t>(taken.size() % 3 + 1)))
        taken.push_back(unit);
    const RefusedMemory refusal(0);
    for (UnitHeader* unit : taken) spool.release(unit);
    std::size_t units = 1;
    while (spool.acquire(UnitKind::ring, 1)) ++units;
    CHECK_EQ(units, spool.most_units());
}

TEST("a reason for which there is no memory is left out, and said to be") {
    std::string reasons = "first";
    const std::string more = "a reason that takes memory";
    {
        const RefusedMemory refusal(0);
        CHECK(!add_reason(reasons, more));
        CHECK(add_reason(reasons, "first"));
        CHECK_EQ(reasons, "first");
    }
    CHECK(add_reason(reasons, more));
    CHECK_EQ(reasons, "first; " + more);
}
