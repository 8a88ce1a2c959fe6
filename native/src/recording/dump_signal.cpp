// The handler does nothing but remember: the drain thread looks.
#include "dftrace/recording/dump_signal.hpp"

#include <signal.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace dftrace {

namespace {

// The one of the run that is on, 0 for none; and the one that came last.
std::atomic<int> asks{0}, came{0};
static_assert(std::atomic<int>::is_always_lock_free);

void remember(int signal) { came.store(signal, std::memory_order_relaxed); }

// Whether nothing happens when it comes and nobody handles it.
bool is_harmless(int signal, const struct sigaction& action) {
    return action.sa_handler == SIG_IGN || signal == SIGURG || signal == SIGCHLD || signal == SIGWINCH;
}

int taken = 0;
struct sigaction previous;

}  // namespace

// What would end the program stays taken when the run has ended: who sends it to all ranks does not know
// which of them have finished.
void set_dump_signal(int signal) {
    struct sigaction now;
    if (taken && sigaction(taken, nullptr, &now) == 0 && now.sa_handler == remember &&
        is_harmless(taken, previous))
        sigaction(taken, &previous, nullptr);
    taken = 0;
    asks.store(0, std::memory_order_relaxed);
    came.store(0, std::memory_order_relaxed);
    if (!signal) return;
    if (sigaction(signal, nullptr, &now) != 0)
        throw std::invalid_argument("signal " + std::to_string(signal) + " cannot be handled");
    const bool handled = now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN && now.sa_handler != remember;
    if ((now.sa_flags & SA_SIGINFO) || handled)
        throw std::invalid_argument("signal " + std::to_string(signal) + " has a handler already");
    struct sigaction ours {};
    ours.sa_handler = remember;
    ours.sa_flags = SA_RESTART;
    sigfillset(&ours.sa_mask);
    if (sigaction(signal, &ours, nullptr) != 0)
        throw std::invalid_argument("signal " + std::to_string(signal) + " cannot be handled");
    if (now.sa_handler != remember) previous = now;
    taken = signal;
    asks.store(signal, std::memory_order_relaxed);
}

int take_dump_signal() noexcept {
    const int signal = came.exchange(0, std::memory_order_relaxed);
    return signal == asks.load(std::memory_order_relaxed) ? signal : 0;
}

}  // namespace dftrace
