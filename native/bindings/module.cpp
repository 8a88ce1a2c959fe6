// The module `dftrace_ai._native`, put together from its parts.
#include <cstdint>

#include "annotation/apart_span.hpp"
#include "annotation/calls.hpp"
#include "annotation/events.hpp"
#include "annotation/node.hpp"
#include "annotation/span.hpp"
#include "annotation/traced_function.hpp"
#include "annotation/traced_iterator.hpp"
#include "dftrace/recording/runtime.hpp"
#include "dftrace/spool/new_spool.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/writing/codec.hpp"
#include "files/held_file.hpp"
#include "files/stand_in.hpp"
#include "instrumentation/call_span.hpp"
#include "instrumentation/gate.hpp"
#include "instrumentation/gated.hpp"
#include "instrumentation/inner_calls.hpp"
#include "instrumentation/thread_counts.hpp"
#include "python.hpp"
#include "reading/dead.hpp"
#include "reading/live.hpp"
#include "run/run.hpp"
#include "run/thread_name.hpp"
#include "tensor/tensor.hpp"
#include "training/recorded_call.hpp"
#include "training/recorded_forward.hpp"
#include "training/training_state.hpp"

namespace dftrace::py {

namespace {

PyObject* build_info(PyObject*, PyObject*) {
    return Py_BuildValue("{s:s,s:s,s:s,s:K,s:s,s:i,s:n}", "gzip", gzip_library().c_str(), "zstd",
                         zstd_library().c_str(), "clock", tick_source.name(), "clock_min_step_ticks",
                         static_cast<unsigned long long>(tick_source.min_step), "compiler", __VERSION__,
                         "spool_version", static_cast<int>(spool_version), "record_bytes",
                         static_cast<Py_ssize_t>(sizeof(Record)));
}

PyMethodDef functions[] = {
    {"quick_calls", or_memory_error<quick_calls>, METH_VARARGS,
     "quick_calls(kind, instance): call nodes of `kind` without Python where only numbers are given."},
    {"show_method", show_method, METH_VARARGS,
     "show_method(name, method): what decorated functions show to who reads their type."},
    {"quick_within_forward", quick_within_forward, METH_VARARGS,
     "quick_within_forward(function, compiler=None, /): calls of modules within modules go past its frame."},
    {"record_within_forward", record_within_forward, METH_VARARGS,
     "record_within_forward(node_of=None, gate, plain=True): these are recorded by nodes of modules."},
    {"look_into", or_memory_error<look_into_spool>, METH_VARARGS,
     "look_into(spool, window_s): what its process is doing."},
    {"unwritten_events", or_memory_error<unwritten_in_spool>, METH_O,
     "unwritten_events(spool, /): how many events it holds that its trace lacks."},
    {"build_info", build_info, METH_NOARGS, "What this module was built with."},
    {nullptr, nullptr, 0, nullptr}};

// What the Python side has to know as well.
int add_constants(PyObject* module) {
    if (PyModule_AddIntConstant(module, "SPOOL_UNIT_BYTES", unit_bytes) < 0) return -1;
    if (PyModule_AddStringConstant(module, "SPOOL_PREFIX", spool_prefix) < 0) return -1;
    if (PyModule_AddStringConstant(module, "SPOOL_SUFFIX", spool_suffix) < 0) return -1;
    return PyModule_AddStringConstant(module, "MARKER_SUFFIX", marker_suffix);
}

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "dftrace_ai._native",
                          "The native core of dftrace_ai.",
                          0,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace dftrace::py

PyMODINIT_FUNC PyInit__native() {
    using namespace dftrace::py;
    // Objects of one interpreter would reach the other through the run and the types, which are the
    // process's.
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(
            PyExc_ImportError,
            "dftrace_ai cannot be imported in a subinterpreter; import it in the main one, or use "
            "processes");
        return nullptr;
    }
    // A second import, after somebody has cleared sys.modules: the types are there already.
    static PyObject* made = nullptr;
    if (made) return Py_NewRef(made);
    dftrace::prepare_runtime();
    dftrace::set_thread_namer(thread_name);
    Ref module(PyModule_Create(&definition));
    if (!module || PyModule_AddFunctions(module.get(), event_functions) < 0 ||
        PyModule_AddFunctions(module.get(), stand_in_functions) < 0 ||
        PyModule_AddFunctions(module.get(), tensor_functions) < 0 ||
        PyModule_AddFunctions(module.get(), run_functions) < 0 ||
        PyModule_AddFunctions(module.get(), dead_spool_functions) < 0 || add_constants(module.get()) < 0 ||
        add_span_types(module.get()) < 0 || add_apart_span_type(module.get()) < 0 ||
        add_node_type(module.get()) < 0 || add_method_type(module.get()) < 0 ||
        add_function_type(module.get()) < 0 || add_iterator_type(module.get()) < 0 ||
        add_thread_counts_type(module.get()) < 0 || add_held_file_type(module.get()) < 0 ||
        add_gate_type(module.get()) < 0 || add_gated_type(module.get()) < 0 ||
        add_training_types(module.get()) < 0 || add_recorded_call_type(module.get()) < 0 ||
        add_recorded_forward_type(module.get()) < 0 || prepare_call_spans() < 0 || prepare_inner_calls() < 0)
        return nullptr;
    made = Py_NewRef(module.get());
    return module.release();
}
