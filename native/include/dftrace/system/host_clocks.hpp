// How the clocks of the host stand to each other at a moment, and how well its wall clock is kept.
#pragma once

#include <cstdint>

namespace dftrace {

// What the kernel knows of the keeping of its wall clock, as whoever keeps it by NTP has told it.
struct ClockKeeping {
    std::uint32_t known;  // 0: the kernel does not say, as in some containers
    std::uint32_t synchronised;
    std::int64_t max_error_us;
    std::int64_t estimated_error_us;
    std::int64_t frequency;  // by how much it runs faster than by itself: of a millionth, in 2^-16
};

// Both clocks, the one that counts through sleep and the wall clock, at one moment. All is 0 where nobody has
// looked yet.
struct HostClocks {
    std::int64_t boottime_ns;  // in the middle of the look
    std::int64_t realtime_ns;
    std::uint64_t width_ns;  // how long the look took: the truth lies within half of it
    ClockKeeping keeping;

    // Takes about a microsecond, and no privilege.
    static HostClocks now() noexcept;
};

}  // namespace dftrace
