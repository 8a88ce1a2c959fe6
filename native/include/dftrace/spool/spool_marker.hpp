// The small file beside the trace that tells readers where the spool is.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "dftrace/spool/settings.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"

namespace dftrace {

// What the name of every marker ends with.
constexpr char marker_suffix[] = ".spool-at";

class SpoolMarker {
  public:
    // Makes `<stem>.spool-at`, exclusively like the trace itself, if it is not made yet. Its first line is
    // the spool's path, the second tells on which boot and in which container that path holds, and which file
    // it was made as. From then on its directory is held open.
    void write(const TraceSettings& settings, const std::string& spool) noexcept;
    bool written() const noexcept { return !path_.empty(); }
    // Says that the trace is complete, so that a spool that is not there was not lost; false where it cannot
    // be said. The directory may have been renamed; where the program has closed it, `trace`, the path of the
    // trace by now, may tell where it is.
    bool tell_complete(const std::string& trace) noexcept;
    // 0, also where there is none any more, or the errno for which it stays.
    int remove() noexcept;
    // In a forked child: lets go of the directory, and leaves the parent's marker alone.
    void abandon() noexcept { directory_.close(); }

  private:
    int look_at(int directory, const char* path) const noexcept;

    std::string path_;    // empty: there is none
    HeldFile directory_;  // in which it was made; none where there was no number to be had
    struct stat made_ {};
};

// Of a marker that is found in a directory and belongs to this user.
bool tell_complete(const Directory& directory, const std::string& marker, std::uint32_t owner) noexcept;

// `<boot id> <pid namespace>` of this process, as the second line has it.
std::string marker_place();

}  // namespace dftrace
