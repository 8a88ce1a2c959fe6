// The events of traces as columns, as types of Python's.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_event_types(PyObject* module);

}  // namespace dftrace::py
