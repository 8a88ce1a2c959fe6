// The events of traces as columns, as types of Python's.
#pragma once

#include "dftrace/reading/traces/rows.hpp"
#include "python.hpp"

namespace dftrace::py {

int add_event_types(PyObject* module);

// Of a block; null with an exception set where it is none.
const Rows* rows_of(PyObject* block);

}  // namespace dftrace::py
