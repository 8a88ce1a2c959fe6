// Calls of modules within modules, which are not recorded.
#pragma once

#include "python.hpp"

namespace dftrace::py {

// quick_within_forward(function, compiler=None): have a function that stands for torch's `Module.__call__` do
// what torch's own does without a frame of Python, where this thread is within a forward. `compiler`: torch's
// function that returns what compiles the frames of the calling thread, or None.
PyObject* quick_within_forward(PyObject*, PyObject* arguments);

int prepare_inner_calls();

}  // namespace dftrace::py
