// Traces of processes that died, and what must be in them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "scratch.hpp"
#include "trace_reader.hpp"

// The spool at a path, mapped to be looked at or tampered with.
class OpenedSpool {
  public:
    explicit OpenedSpool(const std::string& path);
    ~OpenedSpool();
    OpenedSpool(const OpenedSpool&) = delete;
    OpenedSpool& operator=(const OpenedSpool&) = delete;

    dftrace::SpoolHeader& header() const { return *reinterpret_cast<dftrace::SpoolHeader*>(base_); }
    dftrace::UnitHeader& unit(std::size_t index) const {
        return *reinterpret_cast<dftrace::UnitHeader*>(base_ + index * dftrace::unit_bytes);
    }
    std::size_t units() const { return bytes_ / dftrace::unit_bytes; }
    char* data() const { return base_; }
    std::size_t bytes() const { return bytes_; }

  private:
    char* base_ = nullptr;
    std::size_t bytes_ = 0;
};

// Records in a child that is then gone as by SIGKILL. Returns the spool that it left.
std::string leave_spool(const ScratchDir& dir, const dftrace::TraceSettings& settings,
                        const std::function<void()>& body);
// With these settings everything stays in the spool.
dftrace::TraceSettings unwritten(dftrace::TraceSettings settings);

// Adopts the spool; the test stops if that does not finish the trace. Returns the trace.
Trace adopted(const std::string& spool);

// The lines of spans, finished or not, sorted: what must be the same however often a run died. Which
// synthetic track a span is on is left out.
std::vector<std::string> span_lines(const Trace& trace);

// Runs the victim and waits for it, with DFTRACE_KILL or DFTRACE_DISK_LIMIT as given (see
// faulty_disk.cpp). Returns its status.
struct Fate {
    std::string kill_at;
    std::string disk_limit;
};
int run_victim(const std::vector<std::string>& arguments, const Fate& fate = {});
bool was_killed(int status);

// The victim's counts of what it has stored for sure, thread by thread, in a file at `path`.
class Confirmed {
  public:
    explicit Confirmed(const std::string& path);
    ~Confirmed();
    Confirmed(const Confirmed&) = delete;
    Confirmed& operator=(const Confirmed&) = delete;

    const std::string& path() const { return path_; }
    std::uint64_t of(std::size_t thread) const { return counts_[thread].load(); }
    std::uint64_t sum(std::size_t threads) const;

  private:
    std::string path_;
    std::atomic<std::uint64_t>* counts_ = nullptr;
};

// Waits until so many threads of the victim have stored so many records, and kills it a moment later.
void kill_after(pid_t victim, const Confirmed& confirmed, std::size_t threads, std::uint64_t records,
                std::mt19937& random);
