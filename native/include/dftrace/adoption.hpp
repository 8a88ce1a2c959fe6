// Finishing the trace of a process that died: from its spool, exactly once.
#pragma once

#include <string>

#include "dftrace/session.hpp"

namespace dftrace {

enum class Adopted {
    finished,  // the trace is complete now
    alive,     // its process still runs, or another adopts it right now
    failed,    // `outcome.error` says why
};

struct AdoptionResult {
    Adopted state;
    Outcome outcome;
};

// Writes what the spool at `spool_path` holds and the trace file lacks, and the footer, then
// removes the spool. Killed in the middle, it can be run again.
AdoptionResult adopt_spool(const std::string& spool_path);

}  // namespace dftrace
