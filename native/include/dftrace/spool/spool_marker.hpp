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
// What ends the name of the file beside it that says what is open, see `LiveFile`, and while that is made.
constexpr char live_suffix[] = ".live";
constexpr char new_live_suffix[] = ".live-new";
// The name of such a file, by that of its marker.
std::string beside_marker(const std::string& marker, const char* suffix);

class SpoolMarker {
  public:
    SpoolMarker() = default;
    ~SpoolMarker() { abandon(); }
    SpoolMarker(const SpoolMarker&) = delete;
    SpoolMarker& operator=(const SpoolMarker&) = delete;

    // Makes `<stem>.spool-at`, exclusively like the trace itself, if it is not made yet. Its first line is
    // the spool's path, the second tells on which boot and in which container that path holds, and which file
    // it was made as. From then on its directory is held open, and it is mapped, by which that is found.
    void write(const TraceSettings& settings, const std::string& spool) noexcept;
    bool written() const noexcept { return !path_.empty(); }
    // Empty where there is none.
    const std::string& path() const noexcept { return path_; }
    // Says that the trace is complete, so that a spool that is not there was not lost; false where it cannot
    // be said. The directory may have been renamed.
    bool tell_complete() noexcept;
    // 0, also where there is none any more, or the errno for which it stays.
    int remove() noexcept;
    // Lets go of it, and leaves it where it is: in a forked child it is the parent's.
    void abandon() noexcept;

  private:
    std::string path_;  // empty: there is none
    MappedDirectory directory_;
    void* mapped_ = nullptr;  // never read, which would end the process if somebody had cut the file
    FileIdentity made_;
};

// Of a marker that is found in a directory and belongs to this user.
bool tell_complete(const Directory& directory, const std::string& marker, std::uint32_t owner) noexcept;

// `<boot id> <pid namespace>` of this process, as the second line has it.
std::string marker_place();

}  // namespace dftrace
