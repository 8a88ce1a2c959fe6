// Spans that one thread begins and another ends, on tracks apart from those of threads.
#pragma once

#include "python.hpp"

namespace dftrace::py {

// `begin(cat, name, args, track)`, a function of the module.
PyObject* begin_apart(PyObject* module, PyObject* arguments);
int add_apart_span_type(PyObject* module);

}  // namespace dftrace::py
