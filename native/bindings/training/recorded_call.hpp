// Functions of torch that make up a step, each recorded as a span and told to the training. Each is called
// once a step, behind milliseconds of other work: what is Python of it would come from memory anew.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_recorded_call_type(PyObject* module);

}  // namespace dftrace::py
