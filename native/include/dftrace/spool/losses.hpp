// What went wrong in a process, and what tracing cost: the counts of the footer.
#pragma once

#include <cstdint>

namespace dftrace {

struct Losses {
    std::uint64_t dropped = 0;
    std::uint64_t waits = 0;
    std::uint64_t unmatched_stops = 0;
    std::uint64_t args_sanitised = 0;
    std::uint64_t drain_cpu_us = 0;
};

}  // namespace dftrace
