// Start, end and fork of the process's run.
#include "dftrace/runtime.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dftrace/names.hpp"

namespace dftrace {

namespace detail {
static std::uint64_t static_generation = 0;
std::uint64_t* live_generation = &static_generation;
constinit thread_local ThisThread this_thread{nullptr, 0, nullptr};
}  // namespace detail

namespace {

struct Run {
    std::mutex mutex;
    bool on = false;
    bool refused = false;  // the spool could not be made: told once, then inert
    pid_t pid = 0;
    std::uint32_t parent_pid = 0;
    std::uint64_t generation = 0;
    std::uint64_t epoch_offset_ns = 0;
    TraceSettings settings;
    std::shared_ptr<Session> session;

    std::uint64_t number = 0;    // of the run, in this process and its forked children
    std::mutex finishing;        // held while a run is ended
    std::uint64_t finished = 0;  // the run that was ended last, and what became of it
    Outcome outcome;
};

// Never destroyed: daemon threads may still record while the process's statics go.
Run& run() {
    static Run* const the_run = new Run;
    return *the_run;
}

pthread_key_t thread_end_key;
ThreadNamer thread_namer = nullptr;

std::uint32_t os_thread_id() { return static_cast<std::uint32_t>(syscall(SYS_gettid)); }

void thread_ended(void*) {
    const detail::ThisThread mine = std::exchange(detail::this_thread, {nullptr, 0, nullptr});
    Run& r = run();
    std::lock_guard lock(r.mutex);
    // The state belongs to its session: if that is gone, so is the state.
    if (mine.thread && r.session && r.generation == mine.generation) r.session->detach(mine.thread);
}

// Somebody is in it for ever.
void leak(std::shared_ptr<Session> session) { static_cast<void>(new std::shared_ptr(std::move(session))); }

// The child has one thread and a copy of everything else, locks in any state among it.
void after_fork_in_child() {
    *detail::live_generation = 0;
    detail::this_thread.thread = nullptr;
    detail::this_thread.generation = 0;
    Run& r = run();
    new (&r.mutex) std::mutex;
    new (&r.finishing) std::mutex;
    r.finished = 0;
    names_after_fork();
    if (!r.on) return;
    if (r.session) {
        r.session->abandon_in_child();
        leak(std::move(r.session));
    }
    r.pid = getpid();
    r.parent_pid = static_cast<std::uint32_t>(getppid());
    r.settings.shown_pid = 0;  // the number was the parent's
    *detail::live_generation = ++r.generation;
}

}  // namespace

void prepare_runtime() {
    static const bool done = [] {
        calibrate_tick_source();
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        void* mapped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped != MAP_FAILED && madvise(mapped, page, MADV_WIPEONFORK) == 0)
            detail::live_generation = static_cast<std::uint64_t*>(mapped);
        pthread_key_create(&thread_end_key, thread_ended);
        pthread_atfork(nullptr, nullptr, after_fork_in_child);
        return true;
    }();
    static_cast<void>(done);
}

Thread* detail::attach_this_thread() noexcept {
    Run& r = run();
    if (!r.on) return nullptr;
    // Asked for before the lock: the namer may run code that records.
    const std::string name = thread_namer ? thread_namer() : std::string();
    if (this_thread.thread && this_thread.generation == *live_generation) return this_thread.thread;
    // A child made by a bare clone() never ran the fork handler.
    if (*live_generation == 0 && r.pid != getpid()) after_fork_in_child();
    std::lock_guard lock(r.mutex);
    if (!r.on || r.refused || *live_generation == 0) return nullptr;
    try {
        if (!r.session)
            r.session = std::make_shared<Session>(r.settings, r.generation, r.parent_pid, r.epoch_offset_ns);
        Thread* thread = r.session->attach(os_thread_id(), name);
        if (thread) {
            this_thread.thread = thread;
            this_thread.generation = r.generation;
            pthread_setspecific(thread_end_key, thread);  // any value: it makes the destructor run
        }
        return thread;
    } catch (const std::exception& error) {
        r.refused = true;
        std::fprintf(stderr, "dftrace: nothing is recorded in process %d: %s\n", getpid(), error.what());
        return nullptr;
    }
}

std::uint64_t start_run(const TraceSettings& settings) {
    Run& r = run();
    std::lock_guard lock(r.mutex);
    if (r.on) throw std::logic_error("a run is on already");
    r.on = true;
    r.refused = false;
    r.pid = getpid();
    r.parent_pid = static_cast<std::uint32_t>(getppid());
    r.settings = settings;
    r.epoch_offset_ns = settings.epoch_offset_ns ? settings.epoch_offset_ns : epoch_offset_now();
    *detail::live_generation = ++r.generation;
    return ++r.number;
}

Outcome finish_run(const Ending& ending, std::uint64_t number) {
    Run& r = run();
    std::lock_guard one_at_a_time(r.finishing);
    if (number && number == r.finished) return r.outcome;
    std::shared_ptr<Session> session;
    {
        std::lock_guard lock(r.mutex);
        if (!r.on || (number && number != r.number)) return {};
        number = r.number;
        r.on = false;
        *detail::live_generation = 0;
        session = std::move(r.session);
    }
    Outcome outcome = session ? session->finish(ending) : Outcome{};
    // Its drain thread still hangs in it.
    if (outcome.abandoned) leak(std::move(session));
    r.finished = number;
    r.outcome = outcome;
    return outcome;
}

bool run_is_on() noexcept { return run().on; }

std::uint64_t run_number() noexcept { return run().on ? run().number : 0; }

Session* current_session() noexcept { return run().session.get(); }

std::shared_ptr<Session> held_session() {
    Run& r = run();
    std::lock_guard lock(r.mutex);
    return r.on ? r.session : nullptr;
}

void count_event_without_thread() noexcept {
    if (*detail::live_generation == 0) return;
    if (Session* session = current_session())
        session->header().dropped.fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t epoch_ns() noexcept {
    const Run& r = run();
    // Like the trace's own clock, this one does not step with the wall clock.
    return r.on ? clock_ns(CLOCK_BOOTTIME) + r.epoch_offset_ns : clock_ns(CLOCK_REALTIME);
}

void set_thread_namer(ThreadNamer namer) noexcept { thread_namer = namer; }

}  // namespace dftrace
