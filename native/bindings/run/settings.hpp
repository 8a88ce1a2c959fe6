// The settings of a run, read from the dict that Python gives.
#pragma once

#include "dftrace/spool/settings.hpp"
#include "python.hpp"

namespace dftrace::py {

// Throws std::invalid_argument, which names the first that is missing or of the wrong type; a Python
// exception may be set as well.
TraceSettings settings_from(PyObject* dict);

}  // namespace dftrace::py
