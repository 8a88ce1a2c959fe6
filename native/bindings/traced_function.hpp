// The type of decorated functions.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_function_type(PyObject* module);

}  // namespace dftrace::py
