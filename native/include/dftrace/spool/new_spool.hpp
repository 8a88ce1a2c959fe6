// Making the spool of this process where there is room for it.
#pragma once

#include <cstdint>

#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/system/clock.hpp"

namespace dftrace {

// What the name of every spool begins and ends with.
constexpr char spool_prefix[] = "dftrace-";
constexpr char spool_suffix[] = ".spool";

// A spool in the first directory that takes it; throws std::runtime_error, which tells why none does.
Spool new_spool(const TraceSettings& settings, const ClockMap& clock, std::uint32_t parent_pid);

}  // namespace dftrace
