// A function of Python stays what it is for who reads, pickles or compiles it; a call of a module takes the
// quick way, for the interpreter reaches `__call__` of a class by the function's own pointer.
#include "instrumentation/inner_calls.hpp"

#include <dlfcn.h>

#include "instrumentation/thread_counts.hpp"

namespace dftrace::py {

namespace {

PyObject* compiled_name = nullptr;  // of torch's attributes of a module
PyObject* plain_name = nullptr;
vectorcallfunc by_frame = nullptr;        // that of all functions
PyObject* compiler_here = nullptr;        // torch's, says what compiles the frames of this thread; or null
_PyFrameEvalFunction of_torch = nullptr;  // what runs frames for it, once that is known

// Whether two functions are of one library.
bool are_together(void* one, void* other) {
    Dl_info first, second;
    return dladdr(one, &first) && dladdr(other, &second) && first.dli_fbase == second.dli_fbase;
}

bool is_of_torch(_PyFrameEvalFunction evaluator) {
    if (evaluator == of_torch) return true;
    if (!compiler_here) return false;
    auto* const said = reinterpret_cast<void*>(PyCFunction_GET_FUNCTION(compiler_here));
    if (!are_together(reinterpret_cast<void*>(evaluator), said)) return false;
    of_torch = evaluator;
    return true;
}

// Whether somebody else runs the frames, as torch.compile does, who then has to see all of them. Torch runs
// those of all threads while one of them compiles, and behind a compilation that failed for good: it hands
// those of a thread in which nothing compiles on.
bool frames_are_watched() {
    const auto evaluator = _PyInterpreterState_GetEvalFrameFunc(PyInterpreterState_Get());
    if (evaluator == _PyEval_EvalFrameDefault) return false;
    if (!is_of_torch(evaluator)) return true;
    const Ref compiler(PyObject_CallNoArgs(compiler_here));
    if (!compiler) PyErr_Clear();
    return compiler.get() != Py_None;
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

PyObject* quick_within_forward(PyObject*, PyObject* arguments) {
    PyObject *function = nullptr, *compiler = Py_None;
    if (!PyArg_ParseTuple(arguments, "O|O", &function, &compiler)) return nullptr;
    if (!PyFunction_Check(function)) return PyErr_Format(PyExc_TypeError, "it is no function of Python");
    const Ref before(
        std::exchange(compiler_here, PyCFunction_Check(compiler) ? Py_NewRef(compiler) : nullptr));
    of_torch = nullptr;
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
