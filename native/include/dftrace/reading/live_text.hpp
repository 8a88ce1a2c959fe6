// What a process tells them on other hosts: what of a look into its spool matters to who waits for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "dftrace/reading/live_spool.hpp"

namespace dftrace {

// Over a network, that is one message.
inline constexpr std::size_t most_live_bytes = 2048;

// One object of JSON and a line break, `schemas/live.schema.json`. Outer spans, stacks and other threads than
// the main one are left out where they do not fit. `every_ms`: time between two of them; `wall_ns`: the wall
// clock.
std::string live_text(const LiveSpool& seen, std::uint64_t every_ms, std::uint64_t wall_ns);

}  // namespace dftrace
