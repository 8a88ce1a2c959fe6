// Events for programs that take Arrow's columns.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_capsules(PyObject* module);

}  // namespace dftrace::py
