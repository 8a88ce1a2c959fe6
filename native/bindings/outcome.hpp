// What became of a run, as Python values.
#pragma once

#include "dftrace/writing/outcome.hpp"
#include "python.hpp"

namespace dftrace::py {

// A new dict, or nullptr with an exception set.
PyObject* outcome_dict(const Outcome& outcome);

}  // namespace dftrace::py
