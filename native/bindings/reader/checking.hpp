// Holding traces against the format, for Python.
#pragma once

#include "python.hpp"

namespace dftrace::py {

// Adds the type `Checking`; -1 with an exception set.
int add_checking_type(PyObject* module);

}  // namespace dftrace::py
