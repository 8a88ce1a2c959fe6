// The way of a flight recorder, and what it counts by.
#pragma once

#include <cstdint>
#include <memory>

#include "dftrace/recording/retention.hpp"

namespace dftrace {

// The last records stay in the spool, as many as fit or as are young enough (`memory_ns`: what is older is
// let go; 0: all that fits is kept), and are written when asked for.
std::unique_ptr<Retention> make_flight_recorder(Spool& spool, Retention::Wake wake, std::uint64_t memory_ns);

// The tick of the unit's last record that has one; 0 if none has.
std::uint64_t last_tick_of(UnitHeader* unit) noexcept;
// How many of the unit's records [from, to) are events.
std::uint64_t events_in(UnitHeader* unit, std::uint32_t from, std::uint32_t to) noexcept;

}  // namespace dftrace
