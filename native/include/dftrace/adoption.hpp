// Finishing the trace of a process that died: from its spool, exactly once.
#pragma once

#include <string>
#include <vector>

#include "dftrace/session.hpp"

namespace dftrace {

enum class Adopted {
    finished,  // the trace is complete now
    alive,     // its process still runs, or another adopts it right now
    failed,    // `outcome.error` says why
    gone,      // there is no such spool any more: another has finished the trace
};

struct AdoptionResult {
    Adopted state;
    Outcome outcome;
    std::vector<std::string> damage;  // what of the spool could not be read, a line each
};

// Writes what the spool at `spool_path` holds and the trace lacks, and the footer, then removes the
// spool. Killed in the middle, it can be run again. Files are written in `directory` and nowhere else,
// whatever the spool says; empty means the directory that the spool names. With `anew` a trace that is
// gone is begun again with what the spool still holds; else that is a failure. The marker, if one is
// named, is removed before the spool is: where a spool is missing and its marker is not, it was lost.
AdoptionResult adopt_spool(const std::string& spool_path, const std::string& directory = {},
                           bool anew = false, const std::string& marker_path = {});

// The directory in which the trace of a spool is, as its process knew it. Throws std::runtime_error if
// the file is no spool of this version.
std::string trace_directory_of(const std::string& spool_path);

}  // namespace dftrace
