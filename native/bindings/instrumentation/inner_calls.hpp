// Calls of modules within modules, which take no frame of Python here, recorded or not.
#pragma once

#include "python.hpp"

namespace dftrace::py {

// quick_within_forward(function, compiler=None): have a function that stands for torch's `Module.__call__` do
// what torch's own does without a frame of Python, where this thread is within a forward. `compiler`: torch's
// function that returns what compiles the frames of the calling thread, or None.
PyObject* quick_within_forward(PyObject*, PyObject* arguments);

// record_within_forward(node_of, gate, plain): have those calls recorded by the node that a function returns
// for a module and its level. Without arguments: not any more.
PyObject* record_within_forward(PyObject*, PyObject* arguments);

int prepare_inner_calls();

}  // namespace dftrace::py
