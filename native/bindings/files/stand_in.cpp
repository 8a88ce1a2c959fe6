// A built-in function in another's place, which lets somebody hear of its calls: of the same kind, without a
// frame of its own in tracebacks.
#include <cstring>
#include <string>

#include "arguments/json_args.hpp"
#include "dftrace/text/hash.hpp"
#include "dftrace/text/json_string.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

// State of the module that the function belongs to: a function of a module is shown and pickled by its name.
struct StandIn {
    PyMethodDef definition;
    PyObject* original;
    PyObject* before;
    PyObject* after;
    PyObject* only;  // null for all calls
};

StandIn* state_of(PyObject* home) { return static_cast<StandIn*>(PyModule_GetState(home)); }

// Whether a frame is of a module that is neither ours nor of the standard library.
bool is_of_another(PyObject* frame) {
    const Ref globals(PyObject_GetAttrString(frame, "f_globals"));
    PyObject* const name = globals ? PyDict_GetItemString(globals.get(), "__name__") : nullptr;
    const char* const text = name && PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
    if (!text) return true;
    const std::string module(text, std::strcspn(text, "."));
    const Ref outermost(PyUnicode_FromStringAndSize(module.data(), static_cast<Py_ssize_t>(module.size())));
    PyObject* const library = PySys_GetObject("stdlib_module_names");
    return module != "dftrace_ai" && !(outermost && library && PySet_Contains(library, outermost.get()) == 1);
}

// Whether what is raised is the program's: what asks it to stop, and what a handler of a signal raises, which
// runs in the midst of any function.
bool is_of_the_program() {
    if (!PyErr_ExceptionMatches(PyExc_Exception)) return true;
    const ErrorAside aside;
    Ref at(Py_XNewRef(aside.traceback()));
    while (at && at.get() != Py_None) {
        const Ref frame(PyObject_GetAttrString(at.get(), "tb_frame"));
        if (frame && is_of_another(frame.get())) {
            PyErr_Clear();
            return true;
        }
        at = Ref(PyObject_GetAttrString(at.get(), "tb_next"));
    }
    PyErr_Clear();
    return false;
}

// Of this thread: a fault is being told. To print it files are opened, where it would come again, and again.
thread_local bool telling = false;

// Whether to go on behind a call of who hears. What he raised is a fault of his, of which is told.
bool heard(const Ref& answer, PyObject* who) {
    if (answer) return true;
    if (is_of_the_program()) return false;
    telling = true;
    PyErr_WriteUnraisable(who);
    telling = false;
    return true;
}

bool is_meant(const StandIn& mine, PyObject* const* args, std::size_t count) {
    if (telling) return false;
    if (!mine.only) return true;
    if (PyVectorcall_NARGS(count) < 1 || !PyLong_CheckExact(args[0])) return false;
    const int found = PyDict_Contains(mine.only, args[0]);
    if (found < 0) PyErr_Clear();
    return found > 0;
}

PyObject* call(PyObject* home, PyObject* const* args, Py_ssize_t count, PyObject* names) {
    const StandIn& mine = *state_of(home);
    const Ref held(Py_NewRef(mine.original));
    const auto plain = static_cast<std::size_t>(count);
    if (!is_meant(mine, args, plain)) return PyObject_Vectorcall(held.get(), args, plain, names);
    const Ref token(PyObject_Vectorcall(mine.before, args, plain, names));
    if (!heard(token, mine.before)) return nullptr;
    if (!token || token.get() == Py_None) return PyObject_Vectorcall(held.get(), args, plain, names);
    // Something else to be called may be the first of what it is.
    PyObject* instead = PyTuple_Check(token.get()) && PyTuple_GET_SIZE(token.get())
                            ? PyTuple_GET_ITEM(token.get(), 0)
                            : Py_None;
    if (instead == Py_None) instead = held.get();
    Ref result(PyObject_Vectorcall(instead, args, plain, names));
    if (!result) {
        ErrorAside aside;
        const Ref answer(
            PyObject_CallFunctionObjArgs(mine.after, token.get(), Py_None, aside.type(), nullptr));
        if (!heard(answer, mine.after)) aside.forget();
        return nullptr;
    }
    const Ref answer(PyObject_CallFunctionObjArgs(mine.after, token.get(), result.get(), Py_None, nullptr));
    return heard(answer, mine.after) ? result.release() : nullptr;
}

int traverse(PyObject* home, visitproc visit, void* arg) {
    const StandIn* mine = state_of(home);
    if (!mine) return 0;
    Py_VISIT(mine->original);
    Py_VISIT(mine->before);
    Py_VISIT(mine->after);
    Py_VISIT(mine->only);
    return 0;
}

int clear(PyObject* home) {
    StandIn* mine = state_of(home);
    if (!mine) return 0;
    // The function may still be called by who has it: it needs the original as long as there is one.
    Py_CLEAR(mine->only);
    return 0;
}

void release(void* home) {
    StandIn* mine = state_of(static_cast<PyObject*>(home));
    if (!mine) return;
    Py_CLEAR(mine->original);
    Py_CLEAR(mine->before);
    Py_CLEAR(mine->after);
    Py_CLEAR(mine->only);
}

PyModuleDef home_of_functions = {PyModuleDef_HEAD_INIT,
                                 "dftrace_ai._native.stand_in",
                                 nullptr,
                                 sizeof(StandIn),
                                 nullptr,
                                 nullptr,
                                 traverse,
                                 clear,
                                 release};

PyObject* stand_in(PyObject*, PyObject* arguments) {
    PyObject *original = nullptr, *module = nullptr, *before = nullptr, *after = nullptr, *only = Py_None;
    if (!PyArg_ParseTuple(arguments, "O!UOO|O", &PyCFunction_Type, &original, &module, &before, &after,
                          &only))
        return nullptr;
    const PyMethodDef* known = as<PyCFunctionObject>(original)->m_ml;
    const Ref home(PyModule_Create(&home_of_functions));
    if (!home) return nullptr;
    StandIn& mine = *state_of(home.get());
    mine.definition = {known->ml_name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)),
                       METH_FASTCALL | METH_KEYWORDS, known->ml_doc};
    mine.original = Py_NewRef(original);
    mine.before = Py_NewRef(before);
    mine.after = Py_NewRef(after);
    mine.only = PyDict_Check(only) ? Py_NewRef(only) : nullptr;
    return PyCFunction_NewEx(&mine.definition, home.get(), module);
}

PyObject* path_hash(PyObject*, PyObject* path) {
    std::string json;
    ErrorAside aside;
    append_json_string(json, text_of(path));
    const std::string hash = hash_hex(std::string_view(json).substr(1, json.size() - 2));
    return PyUnicode_FromStringAndSize(hash.data(), static_cast<Py_ssize_t>(hash.size()));
}

}  // namespace

PyMethodDef stand_in_functions[] = {
    {"stand_in", stand_in, METH_VARARGS,
     "stand_in(original, module, before, after, only=None): a built-in function in the place of another. "
     "Where before(*args) is a tuple, its first is called instead unless that is None, and after(the tuple, "
     "result, type of the exception) comes behind. With only, a dict, just for calls whose first argument is "
     "an integer in it."},
    {"path_hash", path_hash, METH_O, "path_hash(path): the hash by which dftracer's lines name a file."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace dftrace::py
