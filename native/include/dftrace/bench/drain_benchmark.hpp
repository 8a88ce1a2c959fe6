// How fast records become lines: the drain's work without the threads that feed it.
#pragma once

#include <cstdint>

#include "dftrace/spool/settings.hpp"

namespace dftrace {

struct DrainFigures {
    double seconds_cpu = 0;
    std::uint64_t bytes_plain = 0;
    std::uint64_t bytes_file = 0;
};

// Formats, compresses and writes (to a file that is removed at once) `events` spans of a training
// loop with epoch and step, by the code and in the blocks that a run uses.
DrainFigures measure_drain(std::uint64_t events, Compression compression, int level, bool index);

}  // namespace dftrace
