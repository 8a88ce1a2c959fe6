// Lines of a trace that are not plainly right, or not plainly outside of a window, for Python.
#pragma once

#include "python.hpp"

namespace dftrace::py {

// Adds the types `Checking` and `WindowLines`; -1 with an exception set.
int add_walking_types(PyObject* module);

}  // namespace dftrace::py
