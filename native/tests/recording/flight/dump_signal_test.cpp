// A signal asks for a dump: taken only where nobody else handles it, and harmless from then on.
#include "dftrace/recording/dump_signal.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

using Handler = void (*)(int);

Handler handler_of(int number) {
    struct sigaction now {};
    REQUIRE(sigaction(number, nullptr, &now) == 0);
    return now.sa_handler;
}

void somebody_elses(int) {}
void somebody_elses_with_facts(int, siginfo_t*, void*) {}

TraceSettings recorder(const ScratchDir& dir) {
    TraceSettings settings = dir.settings();
    settings.flight_recorder = true;
    return settings;
}

// Waits until the drain thread has written something more.
void wait_for_write(std::uint64_t before) {
    while (current_session()->header().write_number.load() == before) std::this_thread::yield();
}

void check_dumped(const std::string& path, std::uint64_t spans, int number) {
    const Trace trace = read_trace(path);
    CHECK_EQ(check_complete(trace, "finalize").number("spans"), spans);
    const auto notes = trace.of("i");
    REQUIRE_EQ(notes.size(), 1);
    CHECK_EQ(notes[0].arg("reason"), "\"signal " + std::to_string(number) + "\"");
}

}  // namespace

TEST("a signal that came is told once") {
    set_dump_signal(SIGUSR2);
    CHECK_EQ(take_dump_signal(), 0);
    raise(SIGUSR2);
    raise(SIGUSR2);
    CHECK_EQ(take_dump_signal(), SIGUSR2);
    CHECK_EQ(take_dump_signal(), 0);
    raise(SIGUSR2);
    set_dump_signal(0);
    CHECK_EQ(take_dump_signal(), 0);
}

TEST("a signal that asked once is harmless when the run has ended, and asks for nothing") {
    for (const Handler before : {SIG_DFL, SIG_IGN}) {
        signal(SIGUSR2, before);
        set_dump_signal(SIGUSR2);
        set_dump_signal(0);
        raise(SIGUSR2);
        CHECK_EQ(take_dump_signal(), 0);
        set_dump_signal(SIGUSR1);
        raise(SIGUSR2);
        CHECK_EQ(take_dump_signal(), 0);
        raise(SIGUSR1);
        CHECK_EQ(take_dump_signal(), SIGUSR1);
        set_dump_signal(SIGUSR2);
        raise(SIGUSR2);
        CHECK_EQ(take_dump_signal(), SIGUSR2);
        set_dump_signal(0);
    }
}

TEST("a signal that somebody handles is not taken, before or after") {
    signal(SIGUSR2, somebody_elses);
    CHECK_THROWS(std::invalid_argument, (set_dump_signal(SIGUSR2), 0));
    CHECK(handler_of(SIGUSR2) == somebody_elses);
    struct sigaction with_facts {};
    with_facts.sa_sigaction = somebody_elses_with_facts;
    with_facts.sa_flags = SA_SIGINFO;
    sigaction(SIGUSR2, &with_facts, nullptr);
    CHECK_THROWS(std::invalid_argument, (set_dump_signal(SIGUSR2), 0));
    signal(SIGUSR2, SIG_DFL);
    set_dump_signal(SIGUSR2);
    signal(SIGUSR2, somebody_elses);  // who came later keeps it
    set_dump_signal(0);
    CHECK(handler_of(SIGUSR2) == somebody_elses);
    signal(SIGUSR2, SIG_DFL);
}

TEST("signals that cannot be handled are refused, and the one before asks for nothing") {
    for (const int number : {SIGKILL, SIGSTOP, 10'000, -1}) {
        set_dump_signal(SIGUSR2);
        CHECK_THROWS(std::invalid_argument, (set_dump_signal(number), 0));
        raise(SIGUSR2);
        CHECK_EQ(take_dump_signal(), 0);
    }
}

TEST("a forked child writes what it holds when the signal comes to it, and its parent does not") {
#ifdef __SANITIZE_THREAD__
    SKIP("ThreadSanitizer knows no threads in forked children");
#endif
    const ScratchDir dir;
    set_dump_signal(SIGUSR2);
    start_run(recorder(dir));
    EventName name("signal", "forked");
    for (int i = 0; i < 100; ++i) SpanScope span(name);
    CHECK(in_child([&] {
        for (int i = 0; i < 50; ++i) SpanScope span(name);
        const std::uint64_t before = current_session()->header().write_number.load();
        raise(SIGUSR2);
        wait_for_write(before);
        check_dumped(finish_run({"finalize"}).trace_path, 50, SIGUSR2);
    }));
    CHECK_EQ(take_dump_signal(), 0);
    CHECK_EQ(finish_run({"finalize"}).trace_path, "");
    set_dump_signal(0);
}
