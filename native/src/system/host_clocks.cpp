// Reading the clocks of the host at one moment.
#include "dftrace/system/host_clocks.hpp"

#include <sys/timex.h>
#include <time.h>

#include "dftrace/system/clock.hpp"

namespace dftrace {

namespace {

ClockKeeping keeping_now() noexcept {
    timex asked{};  // no modes: nothing is set
    const int state = adjtimex(&asked);
    if (state < 0) return {};
    const bool synchronised = state != TIME_ERROR && (asked.status & STA_UNSYNC) == 0;
    return {1, synchronised, asked.maxerror, asked.esterror, asked.freq};
}

}  // namespace

HostClocks HostClocks::now() noexcept {
    HostClocks best{};
    // The narrowest of a few: this thread may lose its processor in between.
    constexpr int attempts = 3;
    for (int attempt = 0; attempt < attempts; ++attempt) {
        timespec wall;
        const std::uint64_t before = clock_ns(CLOCK_BOOTTIME);
        clock_gettime(CLOCK_REALTIME, &wall);
        const std::uint64_t width = clock_ns(CLOCK_BOOTTIME) - before;
        if (attempt && width >= best.width_ns) continue;
        best.boottime_ns = static_cast<std::int64_t>(before + width / 2);
        best.realtime_ns = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
        best.width_ns = width;
    }
    best.keeping = keeping_now();
    return best;
}

}  // namespace dftrace
