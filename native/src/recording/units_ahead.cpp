// How many units are made ready.
#include "dftrace/recording/units_ahead.hpp"

#include <algorithm>

namespace dftrace {

void UnitsAhead::keep_up(Clock::time_point now) noexcept {
    const std::uint32_t units = spool_.header().units.load(std::memory_order_relaxed);
    const Clock::duration took = std::max(now - grown_at_, Clock::duration(1));
    const std::int64_t grown = units > units_ ? units - units_ : 0;
    const std::int64_t in_reach = grown * Clock::duration(reach) / took;
    const bool rested = in_reach == 0 && took >= rest;
    if (in_reach || rested) {
        units_ = std::max(units_, units);
        grown_at_ = now;
    }
    if (in_reach) {
        // On a busy machine this thread is away for longer than `reach`, and will be so again.
        const std::int64_t wanted = std::min<std::int64_t>(std::max(in_reach, 2 * grown), most);
        wanted_ = std::max(wanted_, static_cast<std::uint32_t>(wanted));
    }
    if (rested && wanted_) {
        wanted_ = 0;
        spool_.give_back_prepared();
    }
    // Where half of the spool is in use, writing what is there is what makes room.
    if (wanted_ && units <= spool_.most_units() / 2) spool_.prepare(wanted_);
}

UnitsAhead::Clock::time_point UnitsAhead::look_again() const noexcept {
    return wanted_ ? grown_at_ + rest : Clock::time_point::max();
}

}  // namespace dftrace
