// Functions that stand in for built-in ones and let somebody hear of their calls.
#pragma once

#include "python.hpp"

namespace dftrace::py {

// stand_in(original, before, after, only) and path_hash(path).
extern PyMethodDef stand_in_functions[];

}  // namespace dftrace::py
