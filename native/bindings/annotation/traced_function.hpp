// The type of decorated functions.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_function_type(PyObject* module);

// Puts a Python function where those look who read the type's `__get__` instead of calling its slot.
PyObject* show_binding(PyObject* module, PyObject* get);

}  // namespace dftrace::py
