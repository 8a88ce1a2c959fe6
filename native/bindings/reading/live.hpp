// Looking into the spool of another process.
#pragma once

#include "python.hpp"

namespace dftrace::py {

PyObject* look_into_spool(PyObject*, PyObject* arguments);
PyObject* unwritten_in_spool(PyObject*, PyObject* path);

}  // namespace dftrace::py
