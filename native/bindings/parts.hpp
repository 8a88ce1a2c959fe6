// What the module is put together from: each part's types and functions, made ready by the part itself. All
// of type int are -1 with an error set.
#pragma once

#include <string>

#include "python.hpp"

namespace dftrace {
struct Outcome;
}

namespace dftrace::py {

// annotation/
int add_span_types(PyObject* module);
int add_apart_span_type(PyObject* module);
int add_node_type(PyObject* module);
int add_function_type(PyObject* module);
int add_iterator_type(PyObject* module);
// QuickMethod(function, name): the method `update`, `start` or `stop`, which asks `function` for what it does
// not do itself.
int add_method_type(PyObject* module);
extern PyMethodDef event_functions[];
// `begin(cat, name, args, track)`: a span that one thread begins and another ends, on a track apart from
// those of threads.
PyObject* begin_apart(PyObject* module, PyObject* arguments);
// quick_calls(kind, instance): has nodes of `kind` be called without Python, and make nodes of `instance`,
// whose `__call__` is asked where that cannot be.
PyObject* quick_calls(PyObject* module, PyObject* arguments);
// show_method(name, method): puts a Python function where those look who read the type's `__get__` and
// `__call__` instead of calling its slots.
PyObject* show_method(PyObject* module, PyObject* arguments);

// instrumentation/ and training/
int add_instrumentation_types(PyObject* module);
int add_collections_type(PyObject* module);
int prepare_inner_calls();
extern PyMethodDef inner_call_functions[];
int add_training_types(PyObject* module);
int add_recorded_forward_type(PyObject* module);
int add_recorded_call_type(PyObject* module);

// stacks/
int add_stacks_type(PyObject* module);

// files/ and run/
int add_held_file_type(PyObject* module);
extern PyMethodDef stand_in_functions[];
extern PyMethodDef run_functions[];
// The name that Python has for the calling thread, or else the system's.
std::string thread_name();
// What became of a run, as the end of one and recovery give it: a new dict, or nullptr with an exception set.
PyObject* outcome_dict(const Outcome& outcome);

// generating/
int add_made_trace_type(PyObject* module);

// reading/ and tensor/
extern PyMethodDef spool_functions[];
extern PyMethodDef tensor_functions[];
int add_gpu_type(PyObject* module);

}  // namespace dftrace::py
