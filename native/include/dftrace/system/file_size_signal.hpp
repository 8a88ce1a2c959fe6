// SIGXFSZ, which ends a program whose file grows beyond RLIMIT_FSIZE. Tracing must not be the reason.
#pragma once

#include <signal.h>
#include <time.h>

namespace dftrace {

// While it lives a call that would raise the signal in this thread only fails with EFBIG.
class FileSizeSignalHeld {
  public:
    FileSizeSignalHeld() noexcept {
        sigemptyset(&only_);
        sigaddset(&only_, SIGXFSZ);
        sigset_t waiting;
        sigpending(&waiting);
        was_pending_ = sigismember(&waiting, SIGXFSZ) == 1;
        pthread_sigmask(SIG_BLOCK, &only_, &before_);
    }
    ~FileSizeSignalHeld() {
        // What came meanwhile was ours.
        const timespec at_once{0, 0};
        if (!was_pending_) sigtimedwait(&only_, nullptr, &at_once);
        pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    }
    FileSizeSignalHeld(const FileSizeSignalHeld&) = delete;
    FileSizeSignalHeld& operator=(const FileSizeSignalHeld&) = delete;

  private:
    sigset_t only_;
    sigset_t before_;
    bool was_pending_;
};

}  // namespace dftrace
