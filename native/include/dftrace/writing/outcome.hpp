// What became of the trace of a run in one process.
#pragma once

#include <cstdint>
#include <string>

#include "dftrace/spool/record.hpp"

namespace dftrace {

struct Outcome {
    std::string trace_path;          // empty if nothing was written
    std::string spool_path;          // not empty if the spool had to be kept
    std::string spool_refusal;       // why it could not grow when it should, empty if it always could
    std::string error;               // why the trace is not complete, empty if it is
    std::uint64_t events = 0;        // lines of events in the trace file
    std::uint64_t lost_lines = 0;    // events that are not in the trace file: the spool has them, or
    std::uint64_t spoilt_lines = 0;  // ... they were in a file of it that somebody removed or cut
    bool marked = false;             // a marker tells where the spool is
    std::uint64_t spool_bytes = 0;   // that the spool had grown to
    bool abandoned = false;          // the file system does not answer: the session has to stay
    Losses losses;
};

}  // namespace dftrace
