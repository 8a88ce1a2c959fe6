// Small numbers of each thread, by which instrumentation knows what it is inside of.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_thread_counts_type(PyObject* module);

}  // namespace dftrace::py
