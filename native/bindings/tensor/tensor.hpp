// Statistics and quantisation of memory that a tensor library holds.
#pragma once

#include "python.hpp"

namespace dftrace::py {

extern PyMethodDef tensor_functions[];

}  // namespace dftrace::py
