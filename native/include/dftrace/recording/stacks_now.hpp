// Where each thread of the interpreter stands, for who asks for a dump.
#pragma once

#include <string>

#include "dftrace/spool/settings.hpp"

namespace dftrace {

// JSON members, innermost frames first: `,"stacks":[{"thread":4211,"stack":["recv (comm.py:88)"]}]`. Read
// without the interpreter's lock, so also of a thread that holds it in C. Empty where stacks cannot be read.
// `,"left_out":875` behind them counts threads for which there was no room.
std::string stacks_now(const TraceSettings& settings);

}  // namespace dftrace
