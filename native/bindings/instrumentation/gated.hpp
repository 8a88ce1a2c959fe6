// What a loader's fetcher holds in place of a data set or a function.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_gated_type(PyObject* module);

}  // namespace dftrace::py
