// Profiles taken apart into lines, as a type of Python's.
#pragma once

#include "python.hpp"

namespace dftrace::py {

int add_documents_type(PyObject* module);

}  // namespace dftrace::py
