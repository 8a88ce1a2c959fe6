// Threads of our own take no signals: those are the training's.
#pragma once

#ifndef _WIN32
#include <signal.h>
#endif

namespace dftrace {

// While it lives no signal is delivered to this thread, nor ever to one that it begins.
class SignalsBlocked {
  public:
#ifdef _WIN32
    // Each signal comes on a thread of its own there.
    SignalsBlocked() noexcept {}
    ~SignalsBlocked() {}
#else
    SignalsBlocked() noexcept {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
#endif
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

#ifndef _WIN32
  private:
    sigset_t before_;
#endif
};

}  // namespace dftrace
