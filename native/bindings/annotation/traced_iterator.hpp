// The type behind `node.iter(iterable)`.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_iterator_type(PyObject* module);

}  // namespace dftrace::py
