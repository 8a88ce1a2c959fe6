// Spools that are left behind, and the places and processes that they name.
#pragma once

#include "python.hpp"

namespace dftrace::py {

extern PyMethodDef dead_spool_functions[];

}  // namespace dftrace::py
