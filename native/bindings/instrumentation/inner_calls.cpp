// A function of Python stays what it is for who reads, pickles or compiles it; a call of a module takes the
// quick way, for the interpreter reaches `__call__` of a class by the function's own pointer.
#include "instrumentation/inner_calls.hpp"

#include "instrumentation/thread_counts.hpp"

namespace dftrace::py {

namespace {

PyObject* compiled_name = nullptr;  // of torch's attributes of a module
PyObject* plain_name = nullptr;
vectorcallfunc by_frame = nullptr;  // that of all functions

// Whether somebody else runs the frames, as torch.compile does, who then has to see all of them.
bool frames_are_watched() {
    return _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get()) != _PyEval_EvalFrameDefault;
}

PyObject* call_module(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names) {
    const Py_ssize_t given = PyVectorcall_NARGS(count);
    if (!count_of(Inside::forward) || given < 1 || frames_are_watched())
        return by_frame(function, arguments, count, names);
    // References are counted by hand: this is between all modules of a model.
    PyObject* const compiled = PyObject_GetAttr(arguments[0], compiled_name);
    if (!compiled) return nullptr;
    PyObject* const result =
        compiled == Py_None
            ? PyObject_VectorcallMethod(plain_name, arguments, static_cast<std::size_t>(given), names)
            : PyObject_Vectorcall(compiled, arguments + 1, static_cast<std::size_t>(given - 1), names);
    Py_DECREF(compiled);
    return result;
}

}  // namespace

PyObject* quick_within_forward(PyObject*, PyObject* function) {
    if (!PyFunction_Check(function)) return PyErr_Format(PyExc_TypeError, "it is no function of Python");
    auto* const made = as<PyFunctionObject>(function);
    if (made->vectorcall != call_module) by_frame = made->vectorcall;
#if PY_VERSION_HEX >= 0x030C0000
    PyFunction_SetVectorcall(made, call_module);
#else
    made->vectorcall = call_module;
#endif
    return Py_NewRef(function);
}

int prepare_inner_calls() {
    compiled_name = PyUnicode_InternFromString("_compiled_call_impl");
    plain_name = PyUnicode_InternFromString("_call_impl");
    return compiled_name && plain_name ? 0 : -1;
}

}  // namespace dftrace::py
