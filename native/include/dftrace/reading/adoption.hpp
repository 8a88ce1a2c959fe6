// Finishing the trace of a process that died: from its spool, exactly once.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dftrace/writing/outcome.hpp"

namespace dftrace {

enum class Adopted {
    finished,  // the trace is complete now
    alive,     // its process still runs, or another adopts it right now
    failed,    // `outcome.error` says why
    gone,      // there is no such spool any more: another has finished the trace
};

struct AdoptionTerms {
    // Where files are written, and nowhere else, whatever the spool says; empty: where the spool says.
    std::string directory{};
    int descriptor = -1;  // of that directory, where it is held open: its name may be another's by now
    bool anew = false;    // where a trace is gone, or was cut, another part has what is left; else a failure
    // Name in that directory of the marker to remove before the spool is: where a spool is missing and
    // its marker is not, it was lost.
    std::string marker{};
    std::optional<std::uint32_t> owner{};  // the user whose the spool has to be
    bool by_loader = false;                // the process was told to end by its loader, or with its parent
};

struct AdoptionResult {
    Adopted state;
    Outcome outcome;
    std::vector<std::string> damage;  // what of the spool could not be read, a line each
    bool was_complete = false;        // its process had written it to the end: only the spool was left
};

// Writes what the spool at `spool_path` holds and the trace lacks, and the footer, then removes the
// spool. Killed in the middle, it can be run again.
AdoptionResult adopt_spool(const std::string& spool_path, const AdoptionTerms& terms = {});

// The directory in which the trace of a spool is, as its process knew it. Throws std::runtime_error if
// the file is no spool of this version.
std::string trace_directory_of(const std::string& spool_path);

}  // namespace dftrace
