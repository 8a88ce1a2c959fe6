// Traces of processes that died, and what must be in them.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "dftrace/spool.hpp"
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

// Adopts the spool; the test stops if that does not finish the trace. Returns the trace.
Trace adopted(const std::string& spool);

// The lines of spans, finished or not, sorted: what must be the same however often a run died. Which
// synthetic track a span is on is left out.
std::vector<std::string> span_lines(const Trace& trace);

// Runs the victim and waits for it, with DFTRACE_KILL or DFTRACE_FILE_LIMIT as given. Returns its
// status.
struct Fate {
    std::string kill_at;
    std::string file_limit;
};
int run_victim(const std::vector<std::string>& arguments, const Fate& fate = {});
