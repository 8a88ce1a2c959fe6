// The type of decorated functions.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_function_type(PyObject* module);

// show_method(name, method): puts a Python function where those look who read the type's `__get__` and
// `__call__` instead of calling its slots.
PyObject* show_method(PyObject* module, PyObject* arguments);

}  // namespace dftrace::py
