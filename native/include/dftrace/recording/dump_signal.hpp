// A signal that asks a run to write out what it holds.
#pragma once

namespace dftrace {

// From now on `signal` asks for a dump; with 0 none does, and one that did is without effect. Only a signal
// that nobody handles is taken: throws std::invalid_argument for others.
void set_dump_signal(int signal);
// The signal that asked since the last call, 0 for none.
int take_dump_signal() noexcept;

}  // namespace dftrace
