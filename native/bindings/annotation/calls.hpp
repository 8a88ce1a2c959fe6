// `node(step=3)`, `node.start(step=3)` and `node.update(step=3)`, done without Python where all that is given
// are whole numbers.
#pragma once

#include "annotation/node.hpp"
#include "arguments/numbers.hpp"
#include "python.hpp"

namespace dftrace::py {

// A node of `type` as `from` is now, with these numbers; null, with no error set or a MemoryError, where the
// Python side has to make it.
Node* made_by_call(PyTypeObject* type, Node* from, const Numbers& numbers);

// What a node of that type is called by.
vectorcallfunc call_of(PyTypeObject* type) noexcept;

}  // namespace dftrace::py
