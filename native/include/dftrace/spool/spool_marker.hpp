// The small file beside the trace that tells readers where the spool is.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "dftrace/spool/settings.hpp"
#include "dftrace/system/directory.hpp"

namespace dftrace {

// What the name of every marker ends with.
constexpr char marker_suffix[] = ".spool-at";

class SpoolMarker {
  public:
    // Makes `<stem>.spool-at`, exclusively like the trace itself, if it is not made yet. Its first line is
    // the spool's path, the second tells on which boot and in which container that path holds.
    void write(const TraceSettings& settings, const std::string& spool) noexcept;
    bool written() const noexcept { return !path_.empty(); }
    // Says that the trace is complete, so that a spool that is not there was not lost; false where it cannot
    // be said. `trace` is where the trace lies by now: the directory of both may have been renamed.
    bool tell_complete(const std::string& trace) noexcept;
    void remove() noexcept;

  private:
    std::string path_;  // empty: there is none
    struct stat made_ {};
};

// Of a marker that is found in a directory and belongs to this user.
bool tell_complete(const Directory& directory, const std::string& marker, std::uint32_t owner) noexcept;

// `<boot id> <pid namespace>` of this process, as the second line has it.
std::string marker_place();

}  // namespace dftrace
