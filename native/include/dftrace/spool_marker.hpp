// The small file beside the trace that tells readers where the spool is.
#pragma once

#include <string>

#include "dftrace/settings.hpp"

namespace dftrace {

// Makes `<stem>.spool-at`, exclusively like the trace itself; returns its path, empty when it cannot be
// made. Its first line is the spool's path, the second tells on which boot and in which container that
// path holds.
std::string write_marker(const TraceSettings& settings, const std::string& spool) noexcept;

// `<boot id> <pid namespace>` of this process, as the second line has it.
std::string marker_place();

}  // namespace dftrace
