// Units of the spool that are ready before a thread needs them, for as long as one is fast.
//
// A page that nobody has touched yet takes longer than what is stored on it. So the drain thread, in between
// of all that it does, sees how fast the spool grows, and makes room ahead of that. What is not needed any
// more is given back: a thread that rests takes no memory for it.
#pragma once

#include <chrono>
#include <cstdint>

#include "dftrace/spool/spool.hpp"

namespace dftrace {

// The drain thread's own.
class UnitsAhead {
  public:
    using Clock = std::chrono::steady_clock;

    explicit UnitsAhead(Spool& spool, Clock::time_point now = Clock::now()) noexcept
        : spool_(spool), grown_at_(now) {}

    // To be called often, the more so while a thread is fast.
    void keep_up(Clock::time_point now = Clock::now()) noexcept;
    // When it is to be called at the latest, should nothing else happen.
    Clock::time_point look_again() const noexcept;

    static constexpr std::uint32_t most = 128;
    // As many are ready as threads take in this time, in which a block may be compressed. Who takes less than
    // one makes it by himself, which is no part of his time to speak of.
    static constexpr std::chrono::milliseconds reach{8};
    // No new unit for so long, and what is ready is given back.
    static constexpr std::chrono::milliseconds rest{100};

  private:
    // Which every run begins with: the header, a thread's first unit, names, arguments.
    static constexpr std::uint32_t first_units = 4;

    Spool& spool_;
    std::uint32_t units_ = first_units;  // in use, or once used, when it was looked at
    std::uint32_t wanted_ = 0;
    Clock::time_point grown_at_;
};

}  // namespace dftrace
