// Forked children go on by themselves, and the parent's trace knows nothing of it.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

std::string trace_of(const ScratchDir& dir, pid_t pid) {
    const TraceSettings s = dir.settings();
    return s.prefix + "-" + s.host + "-" + std::to_string(pid) + ".pfw.gz";
}

// A forked child that records starts a drain thread, whose number may be that of one of the parent's.
void need_threads_in_children() {
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer knows no threads in forked children");
#endif
}

void need_fork_at_any_moment() {
    need_threads_in_children();
#ifdef __SANITIZE_ADDRESS__
    SKIP("AddressSanitizer's allocator may be locked in a forked child");
#endif
}

// Nothing is written but by `flush`: after it the drain thread rests, and holds no lock of malloc's
// or of a sanitizer's that a child would inherit.
TraceSettings quiet(const ScratchDir& dir) {
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 100'000;
    return settings;
}

void record(EventName& name, int spans) {
    for (int i = 0; i < spans; ++i) SpanScope span(name);
}

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

}  // namespace

TEST("a child forked in the middle of spans has a file of its own, and its child too") {
    need_threads_in_children();
    const ScratchDir dir;
    start_run(quiet(dir));
    EventName in_parent("fork", "parent"), in_first("fork", "child"), in_second("fork", "grandchild");
    SpanScope open_in_parent(in_parent);
    record(in_parent, 10);
    CHECK_EQ(current_session()->flush(), 0);
    const pid_t parent = getpid();
    CHECK(in_child([&] {
        CHECK(current_session() == nullptr);
        CHECK(!open_in_parent.close());
        record(in_first, 20);
        CHECK_EQ(current_session()->flush(), 0);
        const pid_t first = getpid();
        CHECK(in_child([&] {
            record(in_second, 30);
            const Outcome outcome = finish_run({"finalize"});
            CHECK_EQ(outcome.trace_path, trace_of(dir, getpid()));
            check_trace(outcome.trace_path, "grandchild", 30, getpid(), first);
        }));
        record(in_first, 5);
        const Outcome outcome = finish_run({"finalize"});
        CHECK_EQ(outcome.trace_path, trace_of(dir, getpid()));
        check_trace(outcome.trace_path, "child", 25, getpid(), parent);
    }));
    record(in_parent, 3);
    CHECK(open_in_parent.close());
    check_trace(finish_run({"finalize"}).trace_path, "parent", 14, parent, getppid());
    CHECK_EQ(dir.files(".pfw.gz").size(), 3);
    CHECK(dir.files(".spool").empty() && dir.files(".spool-at").empty());
}

TEST("a child that records nothing leaves nothing, and the parent's spool as it is") {
    const ScratchDir dir;
    start_run(quiet(dir));
    EventName name("fork", "parent");
    record(name, 10);
    CHECK_EQ(current_session()->flush(), 0);
    CHECK(in_child([&] { CHECK_EQ(finish_run({"exit"}).trace_path, ""); }));
    CHECK(in_child([] {}));
    CHECK_EQ(dir.files(".spool").size(), 1);
    record(name, 10);
    check_trace(finish_run({"finalize"}).trace_path, "parent", 20, getpid(), getppid());
    CHECK_EQ(dir.files().size(), 1);
}

TEST("a child forked without the fork handlers sees by itself that it is one") {
    need_threads_in_children();
    const ScratchDir dir;
    start_run(quiet(dir));
    EventName name("fork", "bare");
    record(name, 10);
    CHECK_EQ(current_session()->flush(), 0);
    std::fflush(stdout);
    const pid_t child = _Fork();
    if (child == 0) {
        record(name, 7);
        const Outcome outcome = finish_run({"finalize"});
        _exit(outcome.error.empty() && outcome.trace_path == trace_of(dir, getpid()) ? 0 : 1);
    }
    const int status = wait_for(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    record(name, 10);
    check_trace(finish_run({"finalize"}).trace_path, "bare", 20, getpid(), getppid());
    check_trace(trace_of(dir, child), "bare", 7, child, getpid());
}

TEST("a child without the fork handlers ends its run, or looks at it, without its parent's session") {
    const ScratchDir dir;
    start_run(quiet(dir));
    EventName name("fork", "bare");
    record(name, 10);
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
    record(name, 10);
    check_trace(finish_run({"finalize"}).trace_path, "bare", 20, getpid(), getppid());
}

TEST("a child of vfork, which has its parent's memory, leaves the parent's run as it is") {
    const ScratchDir dir;
    start_run(quiet(dir));
    EventName name("fork", "vfork");
    record(name, 10);
    Thread* const thread = recording_thread();
    const pid_t child = vfork();
    if (child == 0) _exit(0);
    wait_for(child);
    CHECK_EQ(recording_thread(), thread);
    record(name, 10);
    check_trace(finish_run({"finalize"}).trace_path, "vfork", 20, getpid(), getppid());
}

TEST("children are forked while threads record, name things and flush") {
    need_fork_at_any_moment();
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 1;
    settings.wait_on_overflow = true;
    start_run(settings);
    EventName in_child_name("fork", "child"), first("fork", "thread");
    record(first, 1);
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> recorded{1};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; !stop.load(); ++i) {
                EventName name("fork", "thread");
                intern_name("fork", std::to_string(t * 1'000'000 + i % 5000));
                record(name, 20);
                recorded += 20;
                if (t == 0 && i % 50 == 0) current_session()->flush();
                if (t == 1) std::thread([&] { record(name, 1), ++recorded; }).join();
                // As fast as possible it would be the drain thread's speed that is tested.
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        });
    const int children = static_cast<int>(scaled(40));
    for (int i = 0; i < children; ++i)
        CHECK(in_child([&] {
            record(in_child_name, 50);
            intern_name("fork", "in child");
            const Outcome outcome = finish_run({"finalize"});
            check_trace(outcome.trace_path, "child", 50, getpid(), getppid());
        }));
    stop.store(true);
    for (auto& thread : threads) thread.join();
    check_trace(finish_run({"finalize"}).trace_path, "thread", recorded.load(), getpid(), getppid());
    CHECK_EQ(dir.files(".pfw.gz").size(), children + 1);
}
