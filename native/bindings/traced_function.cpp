// A decorated function: records a span around each call at little more than the cost of the call.
#include "traced_function.hpp"

#include <structmember.h>

#include <cstddef>

#include "span.hpp"

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

PyObject* function_new(PyTypeObject* type, PyObject* positional, PyObject* keywords) {
    static const char* names[] = {"node", "function", nullptr};
    PyObject *node = nullptr, *wrapped = nullptr;
    if (!PyArg_ParseTupleAndKeywords(positional, keywords, "O!O", const_cast<char**>(names), &node_type,
                                     &node, &wrapped))
        return nullptr;
    if (!PyCallable_Check(wrapped))
        return PyErr_Format(PyExc_TypeError, "%s is not callable", Py_TYPE(wrapped)->tp_name);
    TracedFunction* self = as<TracedFunction>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = function_call;
    self->wrapped = Py_NewRef(wrapped);
    self->node = as<Node>(Py_NewRef(node));
    return reinterpret_cast<PyObject*>(self);
}

int function_traverse(PyObject* self, visitproc visit, void* arg) {
    TracedFunction* function = as<TracedFunction>(self);
    Py_VISIT(function->wrapped);
    Py_VISIT(reinterpret_cast<PyObject*>(function->node));
    Py_VISIT(function->dict);
    return 0;
}

int function_clear(PyObject* self) {
    // The function and its node stay: it may still be called while a cycle is taken apart.
    Py_CLEAR(as<TracedFunction>(self)->dict);
    return 0;
}

void function_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    TracedFunction* function = as<TracedFunction>(self);
    if (function->weak_references) PyObject_ClearWeakRefs(self);
    Py_CLEAR(function->dict);
    Py_CLEAR(function->wrapped);
    PyObject* node = reinterpret_cast<PyObject*>(function->node);
    Py_XDECREF(node);
    Py_TYPE(self)->tp_free(self);
}

PyObject* function_bind(PyObject* self, PyObject* object, PyObject*) {
    if (!object || object == Py_None) return Py_NewRef(self);
    return PyMethod_New(self, object);
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

}  // namespace

int add_function_type(PyObject* module) {
    function_type.tp_name = "dftrace_ai._native.TracedFunction";
    function_type.tp_basicsize = sizeof(TracedFunction);
    function_type.tp_flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_GC;
    function_type.tp_vectorcall_offset = offsetof(TracedFunction, vectorcall);
    function_type.tp_call = PyVectorcall_Call;
    function_type.tp_new = function_new;
    function_type.tp_dealloc = function_dealloc;
    function_type.tp_traverse = function_traverse;
    function_type.tp_clear = function_clear;
    function_type.tp_descr_get = function_bind;
    function_type.tp_repr = function_repr;
    function_type.tp_dictoffset = offsetof(TracedFunction, dict);
    function_type.tp_weaklistoffset = offsetof(TracedFunction, weak_references);
    function_type.tp_members = members;
    function_type.tp_methods = methods;
    function_type.tp_getset = properties;
    if (PyType_Ready(&function_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "TracedFunction", reinterpret_cast<PyObject*>(&function_type));
}

}  // namespace dftrace::py
