// Which spans lie in which, as a type of Python's.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_span_tree_type(PyObject* module);

}  // namespace dftrace::py
