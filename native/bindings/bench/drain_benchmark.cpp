// The module `_drain_benchmark`, which only the benches build: the drain without the threads that feed it.
#include "dftrace/bench/drain_benchmark.hpp"

#include <exception>

#include "dftrace/system/clock.hpp"
#include "python.hpp"

namespace dftrace::py {

namespace {

PyObject* drain(PyObject*, PyObject* arguments) {
    unsigned long long events = 0;
    const char* compression = nullptr;
    int level = 0, index = 1;
    if (!PyArg_ParseTuple(arguments, "Ks|ip", &events, &compression, &level, &index)) return nullptr;
    try {
        DrainFigures figures;
        const Compression wanted = compression_from(compression);
        without_gil([&] { figures = measure_drain(events, wanted, level, index != 0); });
        return Py_BuildValue("{s:K,s:d,s:K,s:K}", "events", events, "seconds_cpu", figures.seconds_cpu,
                             "bytes_plain", static_cast<unsigned long long>(figures.bytes_plain),
                             "bytes_file", static_cast<unsigned long long>(figures.bytes_file));
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
        return nullptr;
    }
}

PyMethodDef functions[] = {{"drain", drain, METH_VARARGS,
                            "drain(events, compression, level=0, index=True): CPU time and bytes of writing "
                            "a training loop's events."},
                           {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_drain_benchmark",
                          "The drain of dftrace_ai, by itself.",
                          0,
                          functions,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace dftrace::py

PyMODINIT_FUNC PyInit__drain_benchmark() {
    dftrace::calibrate_tick_source();
    return PyModule_Create(&dftrace::py::definition);
}
