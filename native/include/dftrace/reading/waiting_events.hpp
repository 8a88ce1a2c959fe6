// The events that a spool holds and its trace lacks, as whoever completes the trace takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dftrace/reading/spool_view.hpp"

namespace dftrace {

// The tick from which on a flight recorder's records are wanted: as long before its last sign of life
// as it was told to remember. 0 where there is no flight recorder. `units` are those of the spool.
std::uint64_t first_wanted_tick(SpoolView& spool, const std::vector<UnitHeader*>& units,
                                const TraceSettings& settings, const ClockMap& clock);

// How many events completing the trace of this spool, as it lies in memory, would add; 0 where there is no
// memory to count them.
std::uint64_t waiting_events(const char* spool, std::size_t bytes) noexcept;

}  // namespace dftrace
