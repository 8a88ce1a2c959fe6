// A run begins, records on its threads, is forked, ends, and can be followed by another.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

void check_trace(const std::string& path, const std::string& name, std::size_t spans, pid_t pid,
                 pid_t parent) {
    const Trace trace = read_trace(path);
    check_complete(trace, "finalize");
    CHECK_EQ(trace.count("X"), spans);
    for (const TraceEvent& e : trace.events()) {
        CHECK_EQ(e.pid, pid);
        if (e.ph == "X") CHECK_EQ(e.name, name);
        if (e.name == "dftrace") CHECK_EQ(e.number("ppid"), parent);
    }
}

struct Seen {
    std::uint64_t id = 0, parent = 0, start = 0, end = 0, level = 0;
    int times = 0;
};

// Of a thread's spans, numbered 2k and 2k + 1: the first holds the second.
void check_pairs(const std::vector<Seen>& spans) {
    std::vector<std::uint64_t> times;
    bool once = true, nested = true;
    for (std::size_t n = 0; n < spans.size(); n += 2) {
        const Seen &outer = spans[n], &inner = spans[n + 1];
        once &= outer.times == 1 && inner.times == 1;
        nested &= outer.parent == 0 && outer.level == 1 && inner.parent == outer.id && inner.level == 2;
        nested &= outer.start < inner.start && inner.end < outer.end;
        for (const Seen* span : {&outer, &inner}) times.insert(times.end(), {span->start, span->end});
    }
    CHECK(once);
    CHECK(nested);
    std::sort(times.begin(), times.end());
    CHECK(std::adjacent_find(times.begin(), times.end()) == times.end());
}

}  // namespace

TEST("one run at a time") {
    const ScratchDir dir;
    start_run(dir.settings());
    CHECK_THROWS(std::logic_error, start_run(dir.settings()));
    CHECK(run_is_on());
    finish_run({"finalize"});
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

TEST("eight threads at full speed: every span once, nested, at times of its own") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.wait_on_overflow = true;
    start_run(settings);
    constexpr std::size_t threads = 8;
    const std::uint64_t spans = scaled(200'000);
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; ++t)
        running.emplace_back([t, spans] {
            EventName name("threads", std::to_string(t));
            for (std::uint64_t n = 0; n < spans; n += 2) {
                SpanScope outer(name);
                SpanScope(name).close({0, n + 1, RecordFlag::has_count});
                outer.close({0, n, RecordFlag::has_count});
            }
        });
    for (auto& thread : running) thread.join();
    const auto [outcome, trace, footer] = finished();
    CHECK_EQ(outcome.error, "");
    CHECK_EQ(footer.number("spans"), threads * spans);
    CHECK_EQ(footer.number("dropped"), 0);
    std::vector<std::vector<Seen>> seen(threads, std::vector<Seen>(spans));
    std::map<std::uint32_t, std::string> names_of_tid;
    trace.each([&](const TraceEvent& e) {
        if (e.ph != "X") return;
        Seen& span = seen.at(std::stoul(std::string(e.name))).at(e.number("count"));
        span = {e.id, e.number("p_idx"), e.ts, e.ts + e.dur, e.number("level"), span.times + 1};
        if (names_of_tid.try_emplace(e.tid, e.name).first->second != e.name)
            CHECK_EQ(names_of_tid[e.tid], e.name);
    });
    CHECK_EQ(names_of_tid.size(), threads);
    for (const auto& of_thread : seen) check_pairs(of_thread);
    CHECK(dir.files(".spool").empty() && dir.files(".spool-at").empty());
}

TEST("threads that flush, record and name things at once do not stand in each other's way") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 1;
    settings.block_bytes = 512;
    start_run(settings);
    EventName common("threads", "common");
    { SpanScope first(common); }
    std::vector<std::thread> threads;
    const std::uint64_t rounds = scaled(300) + 10;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < rounds; ++i) {
                EventName fresh("threads", std::to_string(t) + "-" + std::to_string(i));
                SpanScope outer(common);
                record_now(Kind::instant, fresh, ",\"i\":" + std::to_string(i));
                if (i % 16 == 0) CHECK_EQ(current_session()->flush(), 0);
                CHECK(current_session()->spool_bytes_used() > 0);
            }
        });
    for (auto& thread : threads) thread.join();
    const auto [outcome, trace, footer] = finished();
    CHECK_EQ(footer.number("spans"), 4 * rounds + 1);
    CHECK_EQ(footer.number("instants"), 4 * rounds);
    for (const TraceEvent& e : trace.of("i")) CHECK_EQ(e.name.substr(e.name.find('-') + 1), e.arg("i"));
}

TEST("a child without the fork handlers ends its run, or looks at it, without its parent's session") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    // After a flush the drain thread rests, and holds no lock of malloc's that a child would inherit.
    settings.flush_interval_ms = 100'000;
    start_run(settings);
    EventName name("fork", "bare");
    record_spans(name, 10);
    CHECK_EQ(current_session()->flush(), 0);
    const std::function<bool()> looks[] = {
        [] { return current_session() == nullptr && run_is_on(); },
        [] { return held_session() == nullptr; },
        [] { return finish_run({"exit"}).error.empty() && !run_is_on(); },
    };
    for (const auto& look : looks) {
        const pid_t child = _Fork();
        if (child == 0) _exit(look() ? 0 : 1);
        const int status = wait_for(child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    record_spans(name, 10);
    check_trace(finish_run({"finalize"}).trace_path, "bare", 20, getpid(), getppid());
}

TEST("children are forked while threads record, name things and flush") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
    SKIP("the sanitizers know no threads in forked children, or hold a lock of their own there");
#endif
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 1;
    settings.wait_on_overflow = true;
    start_run(settings);
    EventName in_child_name("fork", "child"), first("fork", "thread");
    record_spans(first, 1);
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> recorded{1};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; !stop.load(); ++i) {
                EventName name("fork", "thread");
                intern_name("fork", std::to_string(t * 1'000'000 + i % 5000));
                record_spans(name, 20);
                recorded += 20;
                if (t == 0 && i % 50 == 0) current_session()->flush();
                if (t == 1) std::thread([&] { record_spans(name, 1), ++recorded; }).join();
                // As fast as possible it would be the drain thread's speed that is tested.
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        });
    const int children = static_cast<int>(scaled(40));
    for (int i = 0; i < children; ++i)
        CHECK(in_child([&] {
            record_spans(in_child_name, 50);
            intern_name("fork", "in child");
            const Outcome outcome = finish_run({"finalize"});
            check_trace(outcome.trace_path, "child", 50, getpid(), getppid());
        }));
    stop.store(true);
    for (auto& thread : threads) thread.join();
    check_trace(finish_run({"finalize"}).trace_path, "thread", recorded.load(), getpid(), getppid());
    CHECK_EQ(dir.files(".pfw.gz").size(), children + 1);
}
