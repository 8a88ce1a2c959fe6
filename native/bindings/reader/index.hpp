// What blocks say of themselves, and what an index line says, between Python and the core.
#pragma once

#include "dftrace/reading/traces/totals.hpp"
#include "python.hpp"

namespace dftrace::py {

// Adds `hop_blocks`; 0, or -1 with an exception set.
int add_hopping(PyObject* module);

// The figures of an index line as `Totals.add_known` is given them; false where they are no such figures.
bool known_figures(PyObject* arguments, KnownFigures& known);
// The tracks of such figures, as `known_figures` takes them.
bool known_tracks(PyObject* list, KnownFigures& known);

// From when to when events reach, or None where there are none. Null with an exception set.
PyObject* reach_told(const BlockReach& reach);

// The same of the core's figures: lists of spans, others and tracks, and from when to when they reach. Null
// with an exception set.
PyObject* figures_told(const KnownFigures& known);

}  // namespace dftrace::py
