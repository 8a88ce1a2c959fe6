// Waiting for a condition, or for a time, by clocks that a preloaded library may fake.
//
// The C library takes no moment before its clock's zero: it returns at once, and has not let go of the mutex.
// Of a clock that was put back, or stands still, every moment is over by the kernel's own: it returns at
// once, too. Then only a sleep, which is as long as it is by any clock, lets others come to the mutex.
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace dftrace {

using SteadyClock = std::chrono::steady_clock;

inline void sleep_unlocked(std::unique_lock<std::mutex>& lock, SteadyClock::duration most) {
    constexpr SteadyClock::duration nap = std::chrono::milliseconds(1);
    lock.unlock();
    std::this_thread::sleep_for(std::min(most, nap));
    lock.lock();
}

// For so long at most, and until somebody notifies: whether somebody did.
inline bool wait_some(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                      SteadyClock::duration most) {
    const auto now = SteadyClock::now();
    if (now > SteadyClock::time_point())
        return condition.wait_until(lock, now + most) == std::cv_status::no_timeout;
    sleep_unlocked(lock, most);
    return false;
}

// Until `holds()`, or that moment; whether it holds.
template <typename Holds>
bool wait_until(std::condition_variable& condition, std::unique_lock<std::mutex>& lock,
                SteadyClock::time_point until, Holds holds) {
    for (auto now = SteadyClock::now(); !holds(); now = SteadyClock::now()) {
        if (now >= until) return false;
        const bool early = wait_some(condition, lock, until - now);
        if (early && !holds()) sleep_unlocked(lock, until - now);
    }
    return true;
}

}  // namespace dftrace
