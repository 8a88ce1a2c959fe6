// Start, end and fork of the process's run.
#include "dftrace/recording/runtime.hpp"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dftrace/text/names.hpp"

namespace dftrace {

namespace detail {
static std::uint64_t static_generation = 0;
std::uint64_t* live_generation = &static_generation;
constinit thread_local ThisThread this_thread{nullptr, 0, nullptr, {}};
}  // namespace detail

namespace {

// A session in the place where a forked child finds it, from its making to its end.
struct Listed {
    std::optional<Session> session;
    Listed* next = nullptr;
    const pid_t pid = getpid();
    bool stays = false;  // its drain thread hangs in it
};

struct Run {
    std::mutex mutex;
    std::atomic<bool> on{false};
    bool refused = false;  // the spool could not be made: told once, then inert
    pid_t pid = 0;
    std::uint32_t parent_pid = 0;
    std::uint64_t generation = 0;
    TraceSettings settings;
    std::shared_ptr<Session> session;
    std::uint64_t number = 0;  // of the run, in this process and its forked children
    // Runs that were stopped and are not completed yet, by number.
    using Stopped = std::map<std::uint64_t, std::shared_ptr<Session>>;
    Stopped stopped;
    Stopped::node_type place;    // among them, of the run that is on: its end takes no memory
    std::mutex finishing;        // held while a run is completed
    std::uint64_t finished = 0;  // the run that was completed last, and what became of it
    Outcome outcome;
    std::unique_ptr<WrittenEnd> written_end;  // of that run, where its process has yet to exit
    pid_t end_of = 0;
    // All that this process has: also those of runs that are over, as long as somebody holds them. A child
    // may be forked at any moment: the list is whole after each store.
    std::mutex sessions_mutex;
    Listed* sessions = nullptr;
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
    const detail::ThisThread mine = std::exchange(detail::this_thread, {nullptr, 0, nullptr, {}});
    Run& r = run();
    std::lock_guard lock(r.mutex);
    // The state belongs to its session: if that is gone, so is the state.
    if (mine.thread && r.session && r.generation == mine.generation) r.session->detach(mine.thread);
}

// Nobody holds the session any more; called on the thread that did so last.
void end_session(Listed* ended) noexcept {
    // In a child its locks may be held by threads that are not there, as its drain thread is not.
    if (ended->stays || ended->pid != getpid()) return;
    Run& r = run();
    {
        std::lock_guard lock(r.sessions_mutex);
        Listed** at = &r.sessions;
        while (*at && *at != ended) at = &(*at)->next;
        if (*at) *at = ended->next;
    }
    delete ended;
}

#ifdef __GLIBC__
// By which status a process exits is known when its trace is complete.
void tell_exit_status(int status, void*) {
    Run& r = run();
    const std::unique_lock lock(r.finishing, std::try_to_lock);
    if (lock && (status & 0xff) && r.written_end && r.end_of == getpid())
        std::exchange(r.written_end, nullptr)->tell_exit_status(status & 0xff);
}

void hear_of_exit() {
    static const int heard = on_exit(tell_exit_status, nullptr);
    static_cast<void>(heard);
}
#else
void hear_of_exit() {}
#endif

std::shared_ptr<Session> new_session(Run& r) {
    // All memory is taken before the drain thread starts.
    const std::shared_ptr<Listed> held(new Listed, end_session);
    held->session.emplace(r.settings, r.generation, r.parent_pid);
    std::lock_guard lock(r.sessions_mutex);
    held->next = r.sessions;
    r.sessions = held.get();
    return {held, &*held->session};
}

// The child has one thread and a copy of everything else, locks in any state among it.
void after_fork_in_child() {
    *detail::live_generation = 0;
    detail::this_thread.thread = nullptr;
    detail::this_thread.generation = 0;
    Run& r = run();
    new (&r.mutex) std::mutex;
    new (&r.finishing) std::mutex;
    r.finished = 0;
    new (&r.sessions_mutex) std::mutex;
    new (&r.stopped) Run::Stopped;
    names_after_fork();
    Sampler::after_fork_in_child();
    // Among them one whose end is under way in the parent.
    for (Listed* parents = r.sessions; parents; parents = parents->next) parents->session->abandon_in_child();
    r.sessions = nullptr;
    new (&r.outcome) Outcome;
    // Not destroyed, and without a call for memory: a bare clone() finds its locks in any state, too.
    alignas(std::shared_ptr<Session>) static std::byte left_behind[sizeof(std::shared_ptr<Session>)];
    new (left_behind) std::shared_ptr<Session>(std::move(r.session));
    if (!r.on) return;
    r.pid = getpid();
    r.parent_pid = static_cast<std::uint32_t>(getppid());
    r.settings.shown_pid = 0;     // the number was the parent's
    r.settings.live_file_ms = 0;  // ranks alone have one: workers come in thousands
    *detail::live_generation = ++r.generation;
}

// A child made by a bare clone() never ran the fork handler. While a run is on, the page that the kernel
// wipes tells of it.
Run& run_of_this_process() noexcept {
    Run& r = run();
    if (r.on && *detail::live_generation == 0 && r.pid != getpid()) after_fork_in_child();
    return r;
}

// Without memory for it a thread has none. Not `noexcept`: see ThreadNamer.
std::string name_of_this_thread() {
    try {
        return thread_namer ? thread_namer() : std::string();
    } catch (const std::bad_alloc&) {
        return {};
    }
}

}  // namespace

void prepare_runtime() {
    static const bool done = [] {
        calibrate_tick_source();
        // Where there is no memory later, nobody meets the first use of them.
        run();
        interned_names();
        const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
        void* mapped = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (mapped != MAP_FAILED && madvise(mapped, page, MADV_WIPEONFORK) == 0)
            detail::live_generation = static_cast<std::uint64_t*>(mapped);
        pthread_key_create(&thread_end_key, thread_ended);
        pthread_atfork(Sampler::hold_ticks, Sampler::go_on, after_fork_in_child);
        return true;
    }();
    static_cast<void>(done);
}

Thread* detail::attach_this_thread() {
    Run& r = run_of_this_process();
    if (!r.on) return nullptr;
    // Asked for before the lock: the namer may run code that records.
    const std::string name = name_of_this_thread();
    Session::Patience patience;
    std::shared_ptr<Session> session;
    do {
        std::lock_guard lock(r.mutex);
        if (!r.on || r.refused || *live_generation == 0) return nullptr;
        // By that code, the thread got its state meanwhile.
        if (this_thread.thread && this_thread.generation == *live_generation) return this_thread.thread;
        try {
            if (!r.session) r.session = new_session(r);
        } catch (const std::exception& error) {
            r.refused = true;
            std::fprintf(stderr, "dftrace: nothing is recorded in process %d: %s\n", getpid(), error.what());
            return nullptr;
        }
        if (Thread* thread = r.session->attach(os_thread_id(), name)) {
            this_thread.thread = thread;
            this_thread.generation = r.generation;
            pthread_setspecific(thread_end_key, thread);  // any value: it makes the destructor run
            return thread;
        }
        session = r.session;
        // Without the lock: threads that end meanwhile need it, and so does the end of the run.
    } while (session->wait_to_attach(patience));
    return nullptr;
}

std::uint64_t start_run(const TraceSettings& settings) {
    Run& r = run_of_this_process();
    std::lock_guard lock(r.mutex);
    if (r.on) throw std::logic_error("a run is on already");
    // All memory first. In this order: a child may be forked at any moment.
    TraceSettings own = settings;
    if (!own.epoch_offset_ns) own.epoch_offset_ns = epoch_offset_now();
    Run::Stopped place;
    place.try_emplace(r.number + 1);
    r.settings = std::move(own);
    r.place = place.extract(place.begin());
    r.refused = false;
    r.pid = getpid();
    r.parent_pid = static_cast<std::uint32_t>(getppid());
    ++r.number;
    r.on = true;
    *detail::live_generation = ++r.generation;
    return r.number;
}

std::uint64_t stop_run(std::uint64_t number) {
    Run& r = run_of_this_process();
    std::lock_guard lock(r.mutex);
    if (!r.on || (number && number != r.number)) return number;
    r.on = false;
    *detail::live_generation = 0;
    r.stopped.insert(std::move(r.place)).position->second = std::move(r.session);
    return r.number;
}

Outcome complete_run(Ending ending, std::uint64_t number) {
    Run& r = run();
    std::lock_guard one_at_a_time(r.finishing);
    if (number && number == r.finished) return r.outcome;
    std::shared_ptr<Session> session;
    {
        std::lock_guard lock(r.mutex);
        const auto found = r.stopped.find(number);
        if (found == r.stopped.end()) return {};
        session = std::move(found->second);
        r.stopped.erase(found);
    }
    Outcome outcome;
    r.written_end.reset();
    const bool may_exit = ending.how != "exception" && ending.exit_status < 0;
    try {
        if (session) session->finish(std::move(ending), outcome);
    } catch (const std::bad_alloc&) {
        if (outcome.error.empty()) outcome.error = "no memory";  // short: it takes none
    }
    if (outcome.abandoned) {
        std::lock_guard lock(r.sessions_mutex);
        for (Listed* each = r.sessions; each; each = each->next)
            each->stays |= &*each->session == session.get();
    }
    if (session && may_exit && !outcome.abandoned && outcome.error.empty()) {
        r.written_end = session->take_written_end();
        r.end_of = getpid();
        hear_of_exit();
    }
    r.finished = number;
    r.outcome = std::move(outcome);
    return r.outcome;
}

Outcome finish_run(Ending ending, std::uint64_t number) {
    return complete_run(std::move(ending), stop_run(number));
}

bool run_is_on() noexcept { return run().on; }

std::uint64_t run_number() noexcept { return run().on ? run().number : 0; }

Session* current_session() noexcept { return run_of_this_process().session.get(); }

std::shared_ptr<Session> held_session() noexcept {
    Run& r = run_of_this_process();
    std::lock_guard lock(r.mutex);
    return r.session;
}

void count_event_without_thread() noexcept {
    if (*detail::live_generation == 0) return;
    if (Session* session = current_session()) session->count_dropped();
}

std::uint64_t epoch_ns() noexcept {
    const Run& r = run();
    // Like the trace's own clock, this one does not step with the wall clock.
    return clock_ns(CLOCK_BOOTTIME) + (r.on ? r.settings.epoch_offset_ns : epoch_offset_now());
}

void set_thread_namer(ThreadNamer namer) noexcept { thread_namer = namer; }

}  // namespace dftrace
