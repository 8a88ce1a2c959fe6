// The outermost call of a module: what a model computes, recorded as a span and told to the training.
#pragma once

#include <cstddef>

#include "python.hpp"

namespace dftrace::py {

struct RecordedForward;

// What does the module's own call, with the arguments that it gets.
using ModuleCall = PyObject* (*)(RecordedForward*, PyObject* const*, std::size_t, PyObject*);

// Not within a module: records, where the module is a model that is meant, what `call` does.
PyObject* recorded_forward(RecordedForward* self, PyObject* const* arguments, std::size_t count,
                           PyObject* names, ModuleCall call);

// Whether torch says by its flag that it compiles or exports; -1 with an error set.
int is_compiling(PyObject* compiler);

extern PyTypeObject recorded_forward_type;

}  // namespace dftrace::py
