// The events of traces as columns, as types of Python's.
#pragma once

#include <memory>

#include "dftrace/reading/arrow/event_arrays.hpp"
#include "python.hpp"

namespace dftrace::py {

int add_event_types(PyObject* module);

// Of a block; null with an exception set where it is none.
const Rows* rows_of(PyObject* block);

// The block itself, and the texts of its names; null with an exception set where it is none.
std::shared_ptr<const ScannedBlock> block_of_object(PyObject* block, std::shared_ptr<LabelTexts>& texts);

}  // namespace dftrace::py
