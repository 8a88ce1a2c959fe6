// The life of a run, as Python drives it.
#pragma once

#include "python.hpp"

namespace dftrace::py {

extern PyMethodDef run_functions[];

}  // namespace dftrace::py
