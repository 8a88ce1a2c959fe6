// The handler does nothing but remember: the drain thread looks.
#include "dftrace/recording/dump_signal.hpp"

#include <signal.h>

#include <atomic>
#include <stdexcept>
#include <string>

namespace dftrace {

namespace {

std::atomic<int> came{0};
static_assert(std::atomic<int>::is_always_lock_free);
int taken = 0;
struct sigaction previous;

void remember(int signal) { came.store(signal, std::memory_order_relaxed); }

}  // namespace

void set_dump_signal(int signal) {
    struct sigaction now;
    if (taken && sigaction(taken, nullptr, &now) == 0 && now.sa_handler == remember)
        sigaction(taken, &previous, nullptr);
    taken = 0;
    came.store(0, std::memory_order_relaxed);
    if (!signal) return;
    if (sigaction(signal, nullptr, &now) != 0)
        throw std::invalid_argument("signal " + std::to_string(signal) + " cannot be handled");
    if ((now.sa_flags & SA_SIGINFO) || (now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN))
        throw std::invalid_argument("signal " + std::to_string(signal) + " has a handler already");
    struct sigaction ours {};
    ours.sa_handler = remember;
    ours.sa_flags = SA_RESTART;
    sigfillset(&ours.sa_mask);
    if (sigaction(signal, &ours, nullptr) != 0)
        throw std::invalid_argument("signal " + std::to_string(signal) + " cannot be handled");
    previous = now;
    taken = signal;
}

int take_dump_signal() noexcept { return came.exchange(0, std::memory_order_relaxed); }

}  // namespace dftrace
