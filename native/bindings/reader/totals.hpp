// What traces add up to, as types of Python's.
#pragma once

#include "dftrace/reading/traces/span_sums.hpp"
#include "python.hpp"

namespace dftrace::py {

int add_totals_type(PyObject* module);
int add_sums_type(PyObject* module);

// A row of figures behind two columns of what they are of, whose references it takes.
PyObject* figures_row(PyObject* first, PyObject* second, const SpanFigures& of);

}  // namespace dftrace::py
