// The process's one run: off, on, or waiting to be taken up by a forked child.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dftrace/recording/session.hpp"
#include "dftrace/recording/thread.hpp"
#include "dftrace/spool/settings.hpp"

namespace dftrace {

namespace detail {
// The generation that records now; 0 while nothing does. The page is wiped by the kernel in every
// child process, however it was forked, so one load tells "off", "finished" and "I am a child".
__attribute__((visibility("hidden"))) extern std::uint64_t* live_generation;
struct ThisThread {
    Thread* thread;
    std::uint64_t generation;  // compared first: the state of a finished session is gone
    // Opaque here: the interpreter's context in which the thread was last seen outside of a task.
    // It lives in this struct so that the hot path finds all it needs by one look-up.
    const void* plain_context;
    // As opaque: what the thread is inside of, by numbers of the bindings' own.
    std::int32_t inside[6];
};
// In the static block of thread-local storage, where a look-up needs no call. Only this one: the block
// has little room for libraries that are loaded late, and nothing that the standard library keeps
// there may be asked for in this way (an `import torch` before ours would leave no room).
extern constinit thread_local ThisThread this_thread
    __attribute__((tls_model("initial-exec"), visibility("hidden")));
Thread* attach_this_thread();
}  // namespace detail

// Once, when the library is loaded.
void prepare_runtime();

// Turns recording on; the spool and the files come with the first record.
// Returns the number of the run. Throws std::logic_error when a run is on already, and std::bad_alloc, with
// no run on.
std::uint64_t start_run(const TraceSettings& settings);
// Turns recording off, for the run of that number only; 0 means the one that is on. The caller holds off all
// threads that record (the bindings do: they hold the GIL): afterwards none of them reaches the session by
// its state, which may go at any time. Returns the number of the run that is to be completed, 0 for none.
std::uint64_t stop_run(std::uint64_t number = 0);
// Completes the trace of a run that was stopped; needs nobody to be held off. A run is completed once: who
// comes while another thread does it waits, and gets the same outcome.
// The outcome lacks what there is no memory for; std::bad_alloc where it cannot be returned, and the next
// call may ask for it again.
Outcome complete_run(Ending ending, std::uint64_t number);
// Both at once.
Outcome finish_run(Ending ending, std::uint64_t number = 0);
bool run_is_on() noexcept;
// Of the run that is on; 0 for none.
std::uint64_t run_number() noexcept;
// The session of the run in this process, or nullptr before the first record; for as long as the caller
// holds off whoever might stop the run.
Session* current_session() noexcept;
// The same for longer: whoever holds it may wait in it when nobody is held off any more, and the run end
// meanwhile, by a signal handler of his own thread for instance.
std::shared_ptr<Session> held_session() noexcept;
// Clock reading in epoch nanoseconds, by the map of the run where there is one.
std::uint64_t epoch_ns() noexcept;

// Named by the caller's language: the name of the calling thread, asked once per thread. It may never
// return: see `holds_gil` of the bindings.
using ThreadNamer = std::string (*)();
void set_thread_namer(ThreadNamer namer) noexcept;

// The calling thread's state when the run is on; nullptr otherwise. The hot path's only check.
inline Thread* recording_thread(const detail::ThisThread& mine) {
    if (mine.generation == *detail::live_generation && mine.thread) [[likely]]
        return mine.thread;
    return detail::attach_this_thread();
}
inline Thread* recording_thread() { return recording_thread(detail::this_thread); }

// Called for each event that is lost because its thread has no state: counts it where the run is on, and
// the spool had no unit for the thread.
void count_event_without_thread() noexcept;

}  // namespace dftrace
