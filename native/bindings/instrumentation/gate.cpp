// What parts of `auto` ask before each span, from Python and from here.
#include "instrumentation/gate.hpp"

#include <structmember.h>

#include <cstddef>

namespace dftrace::py {

namespace {

PyObject* gate_new(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = type->tp_alloc(type, 0);
    if (self) as<Gate>(self)->shared = Py_NewRef(Py_None);
    return self;
}

int gate_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as<Gate>(self)->shared);
    return 0;
}

int gate_clear(PyObject* self) {
    Py_CLEAR(as<Gate>(self)->shared);
    return 0;
}

void gate_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    gate_clear(self);
    Py_TYPE(self)->tp_free(self);
}

PyMemberDef members[] = {
    {"live", T_BOOL, offsetof(Gate, live), 0, "The parts are installed."},
    {"recording", T_BOOL, offsetof(Gate, recording), 0, "They are, and the step is one that is asked for."},
    {"shared", T_OBJECT, offsetof(Gate, shared), 0, "The same for workers, in memory that they share."},
    {nullptr, 0, 0, 0, nullptr}};

}  // namespace

int is_recording_items(const Gate* gate) {
    if (!gate->live) return 0;
    if (!gate->shared || gate->shared == Py_None) return gate->recording;
    const Ref held(Py_NewRef(gate->shared));
    const Ref value(PyObject_GetAttrString(held.get(), "value"));
    return value ? PyObject_IsTrue(value.get()) : -1;
}

PyTypeObject gate_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

int add_gate_type(PyObject* module) {
    gate_type.tp_name = "dftrace_ai._native.Gate";
    gate_type.tp_doc = "Whether anything is recorded now.";
    gate_type.tp_basicsize = sizeof(Gate);
    gate_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC;
    gate_type.tp_new = gate_new;
    gate_type.tp_dealloc = gate_dealloc;
    gate_type.tp_traverse = gate_traverse;
    gate_type.tp_clear = gate_clear;
    gate_type.tp_members = members;
    if (PyType_Ready(&gate_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "Gate", reinterpret_cast<PyObject*>(&gate_type));
}

}  // namespace dftrace::py
