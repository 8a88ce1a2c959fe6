// What blocks say of themselves, and what an index line says, between Python and the core.
#pragma once

#include "dftrace/reading/traces/totals.hpp"
#include "python.hpp"

namespace dftrace::py {

// Adds `hop_blocks`; 0, or -1 with an exception set.
int add_hopping(PyObject* module);

// The figures of an index line as `Totals.add_known` is given them; false where they are no such figures.
bool known_figures(PyObject* arguments, KnownFigures& known);

}  // namespace dftrace::py
