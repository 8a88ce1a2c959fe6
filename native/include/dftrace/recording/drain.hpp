// The drain thread: it looks now and then, and when it is asked to, and writes the end.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "dftrace/recording/live_file.hpp"
#include "dftrace/recording/record_flow.hpp"
#include "dftrace/recording/retention.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/writing/line_formatter.hpp"

namespace dftrace {

class Drain {
  public:
    Drain(const TraceSettings& settings, Spool& spool, RecordFlow& flow, Retention& retention)
        : settings_(settings),
          spool_(spool),
          flow_(flow),
          retention_(retention),
          live_file_(settings, spool) {}
    ~Drain();
    Drain(const Drain&) = delete;
    Drain& operator=(const Drain&) = delete;

    // Starts the thread; throws std::runtime_error.
    void start();
    // Until it has written the marker beside the trace, or failed to; or for so long.
    void wait_for_marker(std::chrono::milliseconds most);

    // Asks it to look; with true, to write what there is now.
    void wake(bool write_out = false);
    // Asks it to tell readers on other hosts what is open so often, where nobody has asked for that yet.
    void tell_others_every(std::uint32_t ms);
    // Asks it to write, and waits a while for it. False where that will not help.
    bool wait_for_room();
    // How often it has written what there was.
    std::uint64_t passes() noexcept {
        const std::lock_guard lock(mutex_);
        return passes_;
    }
    // Blocks until everything recorded before the call is in the file (or failed to be written); a flight
    // recorder writes what it holds, and `reason` beside it. 0 or an errno. `interruption` is asked now and
    // then; when it says so, the call ends with EINTR. It may end the run. Beyond `limit`, 0 for none, or
    // where `finish` has given the file up, ETIMEDOUT; ENOMEM where there is none for the reason.
    int dump(std::string_view reason, bool (*interruption)(), std::chrono::milliseconds limit);
    // Ends the thread once it has written the rest and the footer. False when it hangs in a call to the file
    // system: everything has to stay as it is then, since it may wake up.
    bool finish(Ending ending);
    // Once `finish` has returned true: the errno of what could not be written, or 0.
    int error() const noexcept { return error_; }
    // Likewise: a marker tells where the spool is.
    bool marked() const noexcept { return marker_.written(); }
    // In a forked child, which has no such thread: lets go of what it holds open.
    void abandon_in_child() noexcept {
        flow_.writer().parts().abandon();
        marker_.abandon();
    }

  private:
    using Clock = std::chrono::steady_clock;
    void loop();
    // 0 or the errno of what could not be written.
    int turn(bool write_out, DumpRequest dump, bool tells_stacks) noexcept;
    int end() noexcept;
    void tell_of_failure(int error);
    void tell_of_removal();
    void clear_away();

    const TraceSettings& settings_;
    Spool& spool_;
    RecordFlow& flow_;
    Retention& retention_;

    std::mutex mutex_;  // guards all up to `abandoned_`
    std::condition_variable wake_;
    std::condition_variable passed_;
    bool stop_ = false;
    bool write_out_ = false;
    std::string asked_reason_;  // why a dump is asked for, by all who did
    bool woken_ = false;
    std::uint32_t live_ms_ = settings_.live_file_ms;  // between two writings of `live_file_`, 0 for none
    std::uint64_t passes_ = 0;
    int error_ = 0;  // errno of the last pass; changed by the drain thread only
    bool marker_tried_ = false;
    Ending ending_;  // set with `stop_`
    bool ended_ = false;
    bool abandoned_ = false;  // the drain thread hangs, and the end does not wait for it
    std::atomic<bool> failing_{false};

    // The drain thread's own.
    SpoolMarker marker_;  // tells readers of the trace directory where the spool lies
    LiveFile live_file_;  // tells them on other hosts what is open
    bool told_of_failure_ = false;
    bool told_of_removal_ = false;

    std::thread thread_;
};

}  // namespace dftrace
