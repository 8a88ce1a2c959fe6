#include "instrumentation/thread_counts.hpp"

#include <cstddef>
#include <cstdint>

namespace dftrace::py {

namespace {

// By `Inside`; all are 0 in a thread that begins.
thread_local long counts[6];

// Read before each call of each module: a threading.local finds its thread's dict by two look-ups of text.
PyObject* get_count(PyObject*, void* which) {
    return PyLong_FromLong(counts[reinterpret_cast<std::uintptr_t>(which)]);
}

int set_count(PyObject*, PyObject* value, void* which) {
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "a count of a thread cannot be deleted");
        return -1;
    }
    const long count = PyLong_AsLong(value);
    if (count == -1 && PyErr_Occurred()) return -1;
    counts[reinterpret_cast<std::uintptr_t>(which)] = count;
    return 0;
}

void* number(Inside what) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(what)); }

PyGetSetDef properties[] = {
    {"forward", get_count, set_count, "Modules within modules.", number(Inside::forward)},
    {"backward", get_count, set_count, "1 within a backward pass.", number(Inside::backward)},
    {"optimizer", get_count, set_count, "1 within an optimizer's step.", number(Inside::optimizer)},
    {"waiting", get_count, set_count, "1 while a loader is asked for a batch.", number(Inside::waiting)},
    {"hooked", get_count, set_count, "1 within an optimizer's step that its hooks tell.",
     number(Inside::hooked)},
    {"computing", get_count, set_count, "1 within a step that is one function.", number(Inside::computing)},
    {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyTypeObject counts_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

}  // namespace

long count_of(Inside what) noexcept { return counts[static_cast<std::size_t>(what)]; }

void set_count(Inside what, long count) noexcept { counts[static_cast<std::size_t>(what)] = count; }

int add_thread_counts_type(PyObject* module) {
    counts_type.tp_name = "dftrace_ai._native.ThreadCounts";
    counts_type.tp_doc = "How deep the calling thread is inside of what instrumentation records once only.";
    counts_type.tp_basicsize = sizeof(PyObject);
    counts_type.tp_flags = Py_TPFLAGS_DEFAULT;
    counts_type.tp_new = PyType_GenericNew;
    counts_type.tp_getset = properties;
    if (PyType_Ready(&counts_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "ThreadCounts", reinterpret_cast<PyObject*>(&counts_type));
}

}  // namespace dftrace::py
