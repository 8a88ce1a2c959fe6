// A decorated function: records a span around each call at little more than the cost of the call.
#include <cstddef>
#include <utility>
#include <vector>

#include "annotation/span.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

struct TracedFunction {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* wrapped;
    Node* node;
    PyObject* dict;
    PyObject* weak_references;
};

PyTypeObject function_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyTypeObject bound_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
// For what does not bind to an object itself: builtins, functools.partial, instances with __call__.
PyTypeObject callable_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

// A method that is bound already has a `__get__`, too, which gives the method itself.
bool binds(PyObject* wrapped) {
    return Py_TYPE(wrapped)->tp_descr_get && !Py_IS_TYPE(wrapped, &PyMethod_Type) &&
           !Py_IS_TYPE(wrapped, &bound_type);
}

PyObject* function_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* keywords) {
    const TracedFunction* function = as<TracedFunction>(self);
    Node* node = function->node;
    if (!node->enabled) return PyObject_Vectorcall(function->wrapped, arguments, count, keywords);
    SpanState state;
    open_span(node, node->name, state);
    PyObject* result = PyObject_Vectorcall(function->wrapped, arguments, count, keywords);
    if (state.generation) [[likely]]
        close_span(node, node->name, state, result ? 0 : raised_error());
    return result;
}

PyObject* function_new(PyTypeObject*, PyObject* positional, PyObject* keywords) {
    static const char* names[] = {"node", "function", nullptr};
    PyObject *node = nullptr, *wrapped = nullptr;
    if (!PyArg_ParseTupleAndKeywords(positional, keywords, "O!O", const_cast<char**>(names), &node_type,
                                     &node, &wrapped))
        return nullptr;
    if (!PyCallable_Check(wrapped))
        return PyErr_Format(PyExc_TypeError, "%s is not callable", Py_TYPE(wrapped)->tp_name);
    PyTypeObject* type = binds(wrapped) ? &function_type : &callable_type;
    TracedFunction* self = as<TracedFunction>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = function_call;
    self->wrapped = Py_NewRef(wrapped);
    self->node = as<Node>(Py_NewRef(node));
    return object_of(self);
}

int function_clear(PyObject* self) {
    // The function and its node stay: it may still be called while a cycle is taken apart.
    Py_CLEAR(as<TracedFunction>(self)->dict);
    return 0;
}

// A decorated method, looked up on an object. Not a types.MethodType: torch.compile asks such a one
// for the source file of its function, which a function of this type does not have.
struct BoundFunction {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* function;
    PyObject* self;
    PyObject* weak_references;
};

PyObject* bound_call(PyObject* object, PyObject* const* arguments, std::size_t count, PyObject* keywords) {
    const BoundFunction* bound = as<BoundFunction>(object);
    const auto given = static_cast<std::size_t>(PyVectorcall_NARGS(count));
    const std::size_t total = given + (keywords ? static_cast<std::size_t>(PyTuple_GET_SIZE(keywords)) : 0);
    if (count & PY_VECTORCALL_ARGUMENTS_OFFSET) {
        // The caller lends the place in front of its arguments.
        PyObject** room = const_cast<PyObject**>(arguments) - 1;
        PyObject* lent = std::exchange(room[0], bound->self);
        PyObject* result = function_call(bound->function, room, given + 1, keywords);
        room[0] = lent;
        return result;
    }
    std::vector<PyObject*> all;
    all.reserve(total + 1);
    all.push_back(bound->self);
    all.insert(all.end(), arguments, arguments + total);
    return function_call(bound->function, all.data(), given + 1, keywords);
}

PyObject* bound_make(PyObject* function, PyObject* self) {
    BoundFunction* bound = PyObject_GC_New(BoundFunction, &bound_type);
    if (!bound) return nullptr;
    bound->vectorcall = bound_call;
    bound->function = Py_NewRef(function);
    bound->self = Py_NewRef(self);
    bound->weak_references = nullptr;
    PyObject_GC_Track(object_of(bound));
    return object_of(bound);
}

// BoundFunction(function, self), as weakref.WeakMethod makes one.
PyObject* bound_new(PyTypeObject*, PyObject* positional, PyObject*) {
    PyObject *function = nullptr, *self = nullptr;
    if (!PyArg_ParseTuple(positional, "O!O", &function_type, &function, &self)) return nullptr;
    return bound_make(function, self);
}

PyObject* bound_compare(PyObject* a, PyObject* b, int operation) {
    if ((operation != Py_EQ && operation != Py_NE) || !Py_IS_TYPE(b, &bound_type)) Py_RETURN_NOTIMPLEMENTED;
    const bool same = as<BoundFunction>(a)->function == as<BoundFunction>(b)->function &&
                      as<BoundFunction>(a)->self == as<BoundFunction>(b)->self;
    return PyBool_FromLong(same == (operation == Py_EQ));
}

Py_hash_t bound_hash(PyObject* object) {
    const auto hash = _Py_HashPointer(as<BoundFunction>(object)->function) ^
                      _Py_HashPointer(as<BoundFunction>(object)->self);
    return hash == -1 ? -2 : hash;
}

PyObject* bound_getattr(PyObject* object, PyObject* name) {
    if (PyObject* found = PyObject_GenericGetAttr(object, name)) return found;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    PyErr_Clear();
    return PyObject_GetAttr(as<BoundFunction>(object)->function, name);
}

// The wrapped function, bound, so that whoever follows `__wrapped__` keeps `self`. inspect takes the
// signature from there, without `self`; its getfullargspec, which does not follow, names `self` then.
PyObject* bound_wrapped(PyObject* object, void*) {
    const BoundFunction* bound = as<BoundFunction>(object);
    PyObject* wrapped = as<TracedFunction>(bound->function)->wrapped;
    return Py_TYPE(wrapped)->tp_descr_get(wrapped, bound->self,
                                          reinterpret_cast<PyObject*>(Py_TYPE(bound->self)));
}

PyObject* bound_again(PyObject* object, PyObject*, PyObject*) { return Py_NewRef(object); }

PyObject* bound_doc(PyObject* object, void*) {
    return PyObject_GetAttrString(as<BoundFunction>(object)->function, "__doc__");
}

PyObject* bound_reduce(PyObject* object, PyObject*) {
    Ref builtins(PyImport_ImportModule("builtins"));
    Ref getattr(builtins ? PyObject_GetAttrString(builtins.get(), "getattr") : nullptr);
    Ref name(PyObject_GetAttrString(as<BoundFunction>(object)->function, "__name__"));
    if (!getattr || !name) return nullptr;
    return Py_BuildValue("O(OO)", getattr.get(), as<BoundFunction>(object)->self, name.get());
}

PyObject* bound_repr(PyObject* object) {
    return PyUnicode_FromFormat("<bound %R of %R>", as<BoundFunction>(object)->function,
                                as<BoundFunction>(object)->self);
}

PyMemberDef bound_members[] = {
    {"__func__", T_OBJECT, offsetof(BoundFunction, function), READONLY, "The decorated function."},
    {"__self__", T_OBJECT, offsetof(BoundFunction, self), READONLY, "The object it is bound to."},
    {nullptr, 0, 0, 0, nullptr}};
PyMethodDef bound_methods[] = {{"__reduce__", bound_reduce, METH_NOARGS, nullptr},
                               {nullptr, nullptr, 0, nullptr}};
PyGetSetDef bound_properties[] = {{"__wrapped__", bound_wrapped, nullptr, nullptr, nullptr},
                                  {"__doc__", bound_doc, nullptr, nullptr, nullptr},
                                  {nullptr, nullptr, nullptr, nullptr, nullptr}};

PyObject* function_bind(PyObject* self, PyObject* object, PyObject*) {
    if (!object || object == Py_None) return Py_NewRef(self);
    return bound_make(self, object);
}

PyObject* function_getattr(PyObject* object, PyObject* name) {
    if (PyObject* found = PyObject_GenericGetAttr(object, name)) return found;
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return nullptr;
    // What code expects of a function (`__code__`, `__defaults__`, ...) is the wrapped one's.
    PyErr_Clear();
    return PyObject_GetAttr(as<TracedFunction>(object)->wrapped, name);
}

// What a call does is told by the wrapped function: code and defaults that are set anew, as IPython's
// autoreload sets them, have to get there.
int function_setattr(PyObject* object, PyObject* name, PyObject* value) {
    for (const char* runs : {"__code__", "__defaults__", "__kwdefaults__"})
        if (PyUnicode_CompareWithASCIIString(name, runs) == 0)
            return PyObject_SetAttr(as<TracedFunction>(object)->wrapped, name, value);
    return PyObject_GenericSetAttr(object, name, value);
}

// Found again by its name, like a plain function.
PyObject* function_reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyObject* function_repr(PyObject* self) {
    return PyUnicode_FromFormat("<traced %R>", as<TracedFunction>(self)->wrapped);
}

PyMemberDef members[] = {
    {"node", T_OBJECT, offsetof(TracedFunction, node), READONLY, "The node whose spans the calls are."},
    {nullptr, 0, 0, 0, nullptr}};
PyMethodDef methods[] = {{"__reduce__", function_reduce, METH_NOARGS, nullptr},
                         {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

int add_bound_type(PyObject* module) {
    describe<BoundFunction>(bound_type, "dftrace_ai._native.BoundFunction", nullptr, Py_TPFLAGS_HAVE_GC);
    Owning<BoundFunction, &BoundFunction::function, &BoundFunction::self>::put_into(bound_type);
    bound_type.tp_new = bound_new;
    bound_type.tp_richcompare = bound_compare;
    bound_type.tp_hash = bound_hash;
    bound_type.tp_repr = bound_repr;
    bound_type.tp_getattro = bound_getattr;
    bound_type.tp_descr_get = bound_again;
    bound_type.tp_members = bound_members;
    bound_type.tp_methods = bound_methods;
    bound_type.tp_getset = bound_properties;
    return add_type(module, bound_type);
}

}  // namespace

PyObject* show_method(PyObject*, PyObject* arguments) {
    const char* name = nullptr;
    PyObject* method = nullptr;
    if (!PyArg_ParseTuple(arguments, "sO", &name, &method)) return nullptr;
    if (PyDict_SetItemString(function_type.tp_dict, name, method) < 0) return nullptr;
    PyType_Modified(&function_type);
    Py_RETURN_NONE;
}

int add_function_type(PyObject* module) {
    if (add_bound_type(module) < 0) return -1;
    describe<TracedFunction>(function_type, "dftrace_ai._native.TracedFunction", nullptr,
                             Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_GC);
    Owning<TracedFunction, &TracedFunction::dict, &TracedFunction::wrapped, &TracedFunction::node>::put_into(
        function_type);
    function_type.tp_new = function_new;
    function_type.tp_clear = function_clear;
    function_type.tp_descr_get = function_bind;
    function_type.tp_repr = function_repr;
    function_type.tp_getattro = function_getattr;
    function_type.tp_setattro = function_setattr;
    function_type.tp_members = members;
    function_type.tp_methods = methods;
    function_type.tp_getset = properties;
    callable_type = function_type;
    callable_type.tp_name = "dftrace_ai._native.TracedCallable";
    callable_type.tp_flags &= ~Py_TPFLAGS_METHOD_DESCRIPTOR;
    callable_type.tp_descr_get = nullptr;
    return PyType_Ready(&callable_type) < 0 ? -1 : add_type(module, function_type);
}

}  // namespace dftrace::py
