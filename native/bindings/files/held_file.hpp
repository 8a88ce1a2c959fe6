// Open files for Python, in a process where others close numbers that are not theirs.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_held_file_type(PyObject* module);

}  // namespace dftrace::py
