// Spans with given times, of nodes.
#pragma once

#include <cstdint>

#include "annotation/node.hpp"
#include "python.hpp"

namespace dftrace::py {

// A span of the node, with its arguments, between two moments by the recorder's clock, on a track of that
// name. `id` is its own, 0 for a new one.
void put_between(Node* node, std::uint64_t start, std::uint64_t end, PyObject* track,
                 std::uint64_t id) noexcept;
// Number of the name of a track.
std::uint32_t number_of_track(PyObject* track);

}  // namespace dftrace::py
