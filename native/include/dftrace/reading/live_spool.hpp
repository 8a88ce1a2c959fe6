// What a traced process is doing, read from its spool: of one that runs, without its noticing, and of
// one that has died, as it was at the last. Nothing is locked, marked or written.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dftrace/spool/record.hpp"

namespace dftrace {

enum class ProcessState { alive, dead, on_other_host };

// What an event is called.
struct LiveName {
    std::string name;
    std::string category;
    auto operator<=>(const LiveName&) const = default;
};

// All times are nanoseconds since the epoch, by the clock of the run.
struct LiveSpan {
    std::uint64_t id = 0;
    std::uint64_t parent = 0;
    std::uint64_t start_ns = 0;
    std::uint32_t level = 0;
    std::optional<LiveName> name;  // nothing when it is not known
    std::string args;              // `,"epoch":1,"step":7`, empty when there are none or they are not known
};

// A collective that has ended.
struct LiveCall {
    std::uint64_t start_ns = 0;
    std::uint64_t end_ns = 0;
    LiveName name;
    std::string args;  // as in `LiveSpan`
};

struct LiveThread {
    std::uint32_t tid = 0;
    std::string name;
    bool ended = false;
    std::uint64_t records = 0;             // made so far
    std::uint32_t depth = 0;               // open spans; `open` has at most 240 of them
    std::vector<LiveSpan> open;            // outermost first
    std::vector<LiveSpan> tasks;           // of asyncio tasks, in the order in which they began
    std::optional<std::uint64_t> last_ns;  // of the newest record
    std::uint64_t events = 0;              // in the covered part of the window
    std::uint64_t covered_ns = 0;          // of the window, what the records that are there tell about
    std::vector<std::pair<std::optional<LiveName>, std::uint64_t>> self_ns;  // by name, as in `LiveSpan`
    // Arguments of the newest records that have some, newest first, with the records' times.
    std::vector<std::pair<std::uint64_t, std::string>> newest_args;
    // Where its Python was found last and the time since when, where that is sampled: `,"stack":[...]`,
    // innermost frame first, each as function, file, line and owner (see `CodePlaces`).
    std::string stack;
    std::uint64_t stack_since_ns = 0;
    // How the kernel has it: the letter of its state and, behind a space, in which function of the kernel's
    // it waits; empty where that is not told.
    std::string kernel;
    // The newest collectives, newest first: those of the window, and of what was read with it.
    std::vector<LiveCall> calls;
};

struct LiveSpool {
    std::uint32_t pid = 0;
    std::uint32_t parent_pid = 0;
    std::string host;
    std::string run;
    std::string header;  // members of the trace's header: `,"rank":3,"world_size":8`
    ProcessState state = ProcessState::alive;
    std::uint64_t present_ns = 0;  // now
    std::uint64_t now_ns = 0;  // the moment that this tells about; of a dead process its last sign of life
    std::uint64_t started_ns = 0;  // 0 when it is not known any more
    std::string prefix;            // directory and stem of the traces
    std::string trace_path;        // empty before the first write
    std::uint64_t spool_bytes = 0;
    Losses losses;
    std::uint64_t overwritten = 0;
    std::uint32_t write_error = 0;  // errno of the last write to the trace, 0 if it landed
    bool flight_recorder = false;
    bool finished = false;  // the trace is complete; the spool is about to go
    std::vector<LiveThread> threads;
};

// Throws std::system_error if the file cannot be read, std::runtime_error or std::invalid_argument if it
// is no spool of this version or too damaged to tell anything.
LiveSpool look_into(const std::string& path, std::uint64_t window_ns);

// How many events the spool of a process that runs holds and its trace lacks, as far as spans have ended.
// Throws as `look_into` does.
std::uint64_t unwritten_events(const std::string& path);

}  // namespace dftrace
