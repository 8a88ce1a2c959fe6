// What traces add up to, as a type of Python's.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_totals_type(PyObject* module);

}  // namespace dftrace::py
