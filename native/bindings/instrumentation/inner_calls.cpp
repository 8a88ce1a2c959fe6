// A function of Python stays what it is for who reads, pickles or compiles it; a call of a module takes the
// quick way, for the interpreter reaches `__call__` of a class by the function's own pointer.
#include <dlfcn.h>

#include "instrumentation/gate.hpp"
#include "parts.hpp"
#include "training/recorded_forward.hpp"

namespace dftrace::py {

namespace {

PyObject* compiled_name = nullptr;  // of torch's attributes of a module
PyObject* plain_name = nullptr;
vectorcallfunc by_frame = nullptr;        // that of all functions
PyObject* compiler_here = nullptr;        // torch's, says what compiles the frames of this thread; or null
_PyFrameEvalFunction of_torch = nullptr;  // what runs frames for it, once that is known

PyObject* quick_function = nullptr;  // the one that stands for torch's, borrowed; and what records its calls
PyObject* outermost = nullptr;
PyObject* compiler_flags = nullptr;  // a module

// Where modules within modules are recorded: what says by which node, and as which gate says; or null.
PyObject* node_of = nullptr;
Gate* gate_of_nodes = nullptr;
bool are_plain = true;

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

// What torch's own function does.
PyObject* call_plainly(RecordedForward*, PyObject* const* arguments, std::size_t count, PyObject* names) {
    const Py_ssize_t given = PyVectorcall_NARGS(count);
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

// The span of a module within a model, by a node that may record nothing.
PyObject* call_recorded(PyObject* const* arguments, std::size_t count, PyObject* names) {
    const long level = count_of(Inside::forward) + 1;
    const Ref gate(Py_NewRef(object_of(gate_of_nodes)));
    const Ref asked(Py_NewRef(node_of)), depth(PyLong_FromLong(level));
    const Ref node(depth ? PyObject_CallFunctionObjArgs(asked.get(), arguments[0], depth.get(), nullptr)
                         : nullptr);
    if (!node && !PyErr_ExceptionMatches(PyExc_Exception)) return nullptr;
    if (!node) PyErr_Clear();  // what cannot be named has no span
    const bool known = node && PyObject_TypeCheck(node.get(), &node_type) && as<Node>(node.get())->enabled;
    set_count(Inside::forward, level);
    if (!known) {
        PyObject* const result = call_plainly(nullptr, arguments, count, names);
        set_count(Inside::forward, level - 1);
        return result;
    }
    CallSpan span(as<Node>(node.get()), as<Gate>(gate.get()), are_plain);
    Ref result(span.open() ? call_plainly(nullptr, arguments, count, names) : nullptr);
    const bool closed = span.close(!result);
    set_count(Inside::forward, level - 1);
    return closed ? result.release() : nullptr;
}

PyObject* call_module(PyObject* function, PyObject* const* arguments, std::size_t count, PyObject* names) {
    if (PyVectorcall_NARGS(count) < 1 || frames_are_watched())
        return by_frame(function, arguments, count, names);
    if (count_of(Inside::forward))
        return node_of ? call_recorded(arguments, count, names)
                       : call_plainly(nullptr, arguments, count, names);
    if (function != quick_function || !outermost) return by_frame(function, arguments, count, names);
    const Ref held(Py_NewRef(outermost));
    const int compiles = is_compiling(compiler_flags);
    if (compiles < 0) return nullptr;
    if (compiles) return by_frame(function, arguments, count, names);
    return recorded_forward(as<RecordedForward>(held.get()), arguments, count, names, call_plainly);
}

// Has a function that stands for torch's `Module.__call__` do what torch's own does without a frame of
// Python, where this thread is within a forward. `compiler`: torch's function that returns what compiles the
// frames of the calling thread, or None.
PyObject* quick_within_forward(PyObject*, PyObject* arguments) {
    PyObject *function = nullptr, *compiler = Py_None, *recorded = nullptr, *flags = nullptr;
    if (!PyArg_ParseTuple(arguments, "O|OO!O", &function, &compiler, &recorded_forward_type, &recorded,
                          &flags))
        return nullptr;
    if (!PyFunction_Check(function)) return PyErr_Format(PyExc_TypeError, "it is no function of Python");
    const Ref before(
        std::exchange(compiler_here, PyCFunction_Check(compiler) ? Py_NewRef(compiler) : nullptr));
    const Ref outermost_before(std::exchange(outermost, flags ? Py_NewRef(recorded) : nullptr));
    const Ref flags_before(std::exchange(compiler_flags, Py_XNewRef(flags)));
    quick_function = function;
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

// Has those calls recorded by the node that a function returns for a module and its level. Without arguments:
// not any more.
PyObject* record_within_forward(PyObject*, PyObject* arguments) {
    PyObject *asked = nullptr, *gate = nullptr;
    int plain = 1;
    if (!PyArg_ParseTuple(arguments, "|OO!p", &asked, &gate_type, &gate, &plain)) return nullptr;
    const Ref asked_before(std::exchange(node_of, gate ? Py_NewRef(asked) : nullptr));
    const Ref gate_before(object_of(std::exchange(gate_of_nodes, as<Gate>(Py_XNewRef(gate)))));
    are_plain = plain != 0;
    Py_RETURN_NONE;
}

}  // namespace

PyMethodDef inner_call_functions[] = {
    {"quick_within_forward", quick_within_forward, METH_VARARGS,
     "quick_within_forward(function, compiler=None, /): calls of modules within modules go past its frame."},
    {"record_within_forward", record_within_forward, METH_VARARGS,
     "record_within_forward(node_of=None, gate, plain=True): these are recorded by nodes of modules."},
    {nullptr, nullptr, 0, nullptr}};

int prepare_inner_calls() {
    return intern({{&compiled_name, "_compiled_call_impl"}, {&plain_name, "_call_impl"}});
}

}  // namespace dftrace::py
