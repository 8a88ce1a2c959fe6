// Items and calls that are recorded while a gate says so, at little more than the cost of the span.
#include "instrumentation/gated.hpp"

#include <structmember.h>

#include <cstddef>

#include "annotation/span.hpp"
#include "instrumentation/gate.hpp"

namespace dftrace::py {

namespace {

struct Gated {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* wrapped;
    Node* node;
    Gate* gate;
};

PyTypeObject gated_type = {PyVarObject_HEAD_INIT(nullptr, 0)};
PyObject* several_at_once = nullptr;  // "__getitems__"

template <class Work>
PyObject* recorded(PyObject* self, const Work& work) {
    const Gated* gated = as<Gated>(self);
    Node* node = gated->node;
    const int is_on = is_recording_items(gated->gate);
    if (is_on < 0) return nullptr;
    if (!is_on || !node->enabled) return work(gated->wrapped);
    SpanState state;
    open_span(node, node->name, state);
    PyObject* result = work(gated->wrapped);
    if (state.generation) [[likely]]
        close_span(node, node->name, state, result ? 0 : raised_error());
    return result;
}

PyObject* gated_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return recorded(self,
                    [=](PyObject* wrapped) { return PyObject_Vectorcall(wrapped, arguments, count, names); });
}

PyObject* gated_item(PyObject* self, PyObject* index) {
    return recorded(self, [=](PyObject* wrapped) { return PyObject_GetItem(wrapped, index); });
}

PyObject* gated_getattr(PyObject* self, PyObject* name) {
    // A fetcher asks before each batch whether there is such a method. One that has it is not held so.
    if (name == several_at_once) Py_RETURN_NONE;
    return PyObject_GetAttr(as<Gated>(self)->wrapped, name);
}

PyObject* gated_new(PyTypeObject* type, PyObject* positional, PyObject*) {
    PyObject *wrapped = nullptr, *node = nullptr, *gate = nullptr;
    if (!PyArg_ParseTuple(positional, "OO!O!", &wrapped, &node_type, &node, &gate_type, &gate))
        return nullptr;
    Gated* self = as<Gated>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = gated_call;
    self->wrapped = Py_NewRef(wrapped);
    self->node = as<Node>(Py_NewRef(node));
    self->gate = as<Gate>(Py_NewRef(gate));
    return reinterpret_cast<PyObject*>(self);
}

int gated_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as<Gated>(self)->wrapped);
    Py_VISIT(reinterpret_cast<PyObject*>(as<Gated>(self)->node));
    Py_VISIT(reinterpret_cast<PyObject*>(as<Gated>(self)->gate));
    return 0;
}

void gated_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    Gated* gated = as<Gated>(self);
    Py_CLEAR(gated->wrapped);
    Py_XDECREF(reinterpret_cast<PyObject*>(gated->node));
    Py_XDECREF(reinterpret_cast<PyObject*>(gated->gate));
    Py_TYPE(self)->tp_free(self);
}

PyMappingMethods as_mapping = {nullptr, gated_item, nullptr};

}  // namespace

int add_gated_type(PyObject* module) {
    several_at_once = PyUnicode_InternFromString("__getitems__");
    if (!several_at_once) return -1;
    gated_type.tp_name = "dftrace_ai._native.Gated";
    gated_type.tp_doc =
        "Gated(wrapped, node, gate): calls and items of something, recorded while a gate says so.";
    gated_type.tp_basicsize = sizeof(Gated);
    gated_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC;
    gated_type.tp_vectorcall_offset = offsetof(Gated, vectorcall);
    gated_type.tp_call = PyVectorcall_Call;
    gated_type.tp_new = gated_new;
    gated_type.tp_dealloc = gated_dealloc;
    gated_type.tp_traverse = gated_traverse;
    gated_type.tp_getattro = gated_getattr;
    gated_type.tp_as_mapping = &as_mapping;
    if (PyType_Ready(&gated_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "Gated", reinterpret_cast<PyObject*>(&gated_type));
}

}  // namespace dftrace::py
