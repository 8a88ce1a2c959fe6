// The file beside the trace that tells them on other hosts, who cannot see the spool, what is open.
//
// A thread of its own makes it: a file system that is slow to make or to rename files, or does not answer,
// holds up neither the drain thread nor the end of the run. Nothing of it is retried or told: where it cannot
// be made, others know of this process what they knew.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"

namespace dftrace {

class LiveFile {
  public:
    LiveFile(const TraceSettings& settings, const Spool& spool) : settings_(settings), spool_(spool) {}
    ~LiveFile() { end(std::chrono::milliseconds(0)); }
    LiveFile(const LiveFile&) = delete;
    LiveFile& operator=(const LiveFile&) = delete;

    // Starts the thread, which takes no signals where the caller takes none; the file says how often it is
    // made.
    void begin(std::uint32_t every_ms) noexcept;
    // Has the thread look, and replace the file beside that marker as a whole; nobody waits for it. Where it
    // is at work still, it looks once more when it is done.
    void write(const std::string& marker) noexcept;
    // Has the thread take the file away, and waits for so long at most.
    void end(std::chrono::milliseconds most) noexcept;

  private:
    struct Work;
    const TraceSettings& settings_;
    const Spool& spool_;
    std::shared_ptr<Work> work_;  // what the thread needs, which may outlive this
};

}  // namespace dftrace
