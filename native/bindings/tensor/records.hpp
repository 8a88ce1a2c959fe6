// Records as Python has them, tuples whose numbers have names, and the statistics that are made of them.
#pragma once

#include "dftrace/tensor/record.hpp"
#include "python.hpp"

namespace dftrace::py {

PyObject* record_tuple(const tensor::Record& record);

// tensor_records_as(class): what records are made as.
PyObject* make_records_as(PyObject* module, PyObject* given);

// merge_records(a, b) and record_with_quantisation(record, quantised).
PyObject* merge_records(PyObject* module, PyObject* const* given, Py_ssize_t given_count);
PyObject* record_with_quantisation(PyObject* module, PyObject* const* given, Py_ssize_t given_count);

// final_values(record, names, numbers): a dict of the statistics by name; `numbers` has the number of each.
PyObject* final_values(PyObject* module, PyObject* const* given, Py_ssize_t given_count);

// told_values(values): of a dict of fractions by name what an event tells of them, and the finite ones alone.
PyObject* told_values(PyObject* module, PyObject* values);

}  // namespace dftrace::py
