// The module `dftrace_ai._native`, put together from its parts.
#include <cstdint>

#include "dftrace/recording/runtime.hpp"
#include "dftrace/spool/new_spool.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/tensor/gpu_statistics.hpp"
#include "dftrace/writing/codec.hpp"
#include "parts.hpp"
#include "python.hpp"

namespace dftrace::py {

namespace {

PyObject* build_info(PyObject*, PyObject*) {
    return Py_BuildValue("{s:s,s:s,s:s,s:K,s:s,s:i,s:n,s:s}", "gzip", gzip_library().c_str(), "zstd",
                         zstd_library().c_str(), "clock", tick_source.name(), "clock_min_step_ticks",
                         static_cast<unsigned long long>(tick_source.min_step), "compiler", __VERSION__,
                         "spool_version", static_cast<int>(spool_version), "record_bytes",
                         static_cast<Py_ssize_t>(sizeof(Record)), "gpu_statistics",
                         tensor::gpu_statistics_for().c_str());
}

PyMethodDef functions[] = {
    {"quick_calls", or_memory_error<quick_calls>, METH_VARARGS,
     "quick_calls(kind, instance): call nodes of `kind` without Python where only numbers are given."},
    {"show_method", show_method, METH_VARARGS,
     "show_method(name, method): what decorated functions show to who reads their type."},
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
            "dftrace_ai cannot be imported in a subinterpreter; import it in the main one, or use processes");
        return nullptr;
    }
    // A second import, after somebody has cleared sys.modules: the types are there already.
    static PyObject* made = nullptr;
    if (made) return Py_NewRef(made);
    dftrace::prepare_runtime();
    dftrace::set_thread_namer(thread_name);
    Ref module(PyModule_Create(&definition));
    if (!module || add_constants(module.get()) < 0) return nullptr;
    for (PyMethodDef* part : {event_functions, inner_call_functions, run_functions, spool_functions,
                              stand_in_functions, tensor_functions})
        if (PyModule_AddFunctions(module.get(), part) < 0) return nullptr;
    for (const auto add :
         {add_span_types, add_apart_span_type, add_node_type, add_method_type, add_function_type,
          add_iterator_type, add_held_file_type, add_instrumentation_types, add_collections_type,
          add_training_types, add_recorded_call_type, add_recorded_forward_type, add_stacks_type,
          add_gpu_type, add_made_trace_type})
        if (add(module.get()) < 0) return nullptr;
    if (prepare_inner_calls() < 0) return nullptr;
    made = Py_NewRef(module.get());
    return module.release();
}
