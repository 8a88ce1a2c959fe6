// Events that are not spans: instants, counters, flows, metadata, spans with given times.
#pragma once

#include <cstdint>

#include "annotation/node.hpp"
#include "python.hpp"

namespace dftrace::py {

extern PyMethodDef event_functions[];

// A span of the node, with its arguments, between two moments by the recorder's clock, on a track of that
// name.
void put_between(Node* node, std::uint64_t start, std::uint64_t end, PyObject* track) noexcept;

}  // namespace dftrace::py
