// Whether instrumentation records anything now.
#pragma once

#include "python.hpp"

namespace dftrace::py {

struct Gate {
    PyObject_HEAD bool live;
    bool recording;
    PyObject* shared;  // with a `value`, for workers of loaders; or None
};

extern PyTypeObject gate_type;

// Whether what a loader does is recorded, here or in a worker: 1 or 0, -1 with an error set.
int is_recording_items(const Gate* gate);

int add_gate_type(PyObject* module);

}  // namespace dftrace::py
