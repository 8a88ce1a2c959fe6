// What is done here, and what is handed to the methods that are written in Python.
#include "annotation/calls.hpp"

#include <structmember.h>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace dftrace::py {

namespace {

// All for as long as the process lives.
std::vector<PyTypeObject*> quick_types;
PyTypeObject* instance_type = nullptr;
PyObject* long_way = nullptr;

// Calls a method that is written in Python.
PyObject* call_method(PyObject* method, PyObject* self, PyObject* const* arguments, std::size_t count,
                      PyObject* names) {
    const auto given = static_cast<std::size_t>(PyVectorcall_NARGS(count));
    const std::size_t total = given + (names ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0);
    std::vector<PyObject*> all;
    try {
        all.reserve(total + 1);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    all.push_back(self);
    all.insert(all.end(), arguments, arguments + total);
    return PyObject_Vectorcall(method, all.data(), given + 1, names);
}

PyObject* node_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    Numbers numbers;
    if (PyVectorcall_NARGS(count) == 0 && read_numbers(arguments, names, numbers)) {
        Node* made = made_by_call(instance_type, as<Node>(self), numbers);
        if (made || PyErr_Occurred()) return reinterpret_cast<PyObject*>(made);
    }
    return call_method(long_way, self, arguments, count, names);
}

// Since 3.12 a type has it from the one above that a call of it needs no tuple.
PyObject* node_long_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return call_method(long_way, self, arguments, count, names);
}

}  // namespace

vectorcallfunc call_of(PyTypeObject* type) noexcept {
    const bool quick = std::find(quick_types.begin(), quick_types.end(), type) != quick_types.end();
    return quick ? node_call : node_long_call;
}

PyObject* quick_calls(PyObject*, PyObject* arguments) {
    PyTypeObject *kind = nullptr, *instance = nullptr;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyType_Type, &kind, &PyType_Type, &instance)) return nullptr;
    if (!PyType_IsSubtype(kind, &node_type) || !PyType_IsSubtype(instance, &node_type))
        return PyErr_Format(PyExc_TypeError, "quick_calls is for types of nodes");
    if (!instance_type) {
        long_way = PyObject_GetAttrString(reinterpret_cast<PyObject*>(instance), "__call__");
        if (!long_way) return nullptr;
        instance_type = as<PyTypeObject>(Py_NewRef(reinterpret_cast<PyObject*>(instance)));
    }
    quick_types.push_back(as<PyTypeObject>(Py_NewRef(reinterpret_cast<PyObject*>(kind))));
    kind->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    Py_RETURN_NONE;
}

namespace {

struct QuickUpdate {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* function;
    PyObject* dict;
};

PyTypeObject update_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* update_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    Numbers numbers;
    if (PyVectorcall_NARGS(count) == 1 && names && PyObject_TypeCheck(arguments[0], &node_type) &&
        read_numbers(arguments + 1, names, numbers)) {
        if (numbers.count && !merge_numbers(as<Node>(arguments[0]), numbers)) return nullptr;
        return Py_NewRef(arguments[0]);
    }
    return PyObject_Vectorcall(as<QuickUpdate>(self)->function, arguments, count, names);
}

PyObject* update_bind(PyObject* self, PyObject* object, PyObject*) {
    return !object || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

PyObject* update_new(PyTypeObject* type, PyObject* positional, PyObject*) {
    PyObject* function = nullptr;
    if (!PyArg_ParseTuple(positional, "O!", &PyFunction_Type, &function)) return nullptr;
    QuickUpdate* self = as<QuickUpdate>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = update_call;
    self->function = Py_NewRef(function);
    return reinterpret_cast<PyObject*>(self);
}

int update_traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(as<QuickUpdate>(self)->function);
    Py_VISIT(as<QuickUpdate>(self)->dict);
    return 0;
}

void update_dealloc(PyObject* self) {
    PyObject_GC_UnTrack(self);
    Py_CLEAR(as<QuickUpdate>(self)->function);
    Py_CLEAR(as<QuickUpdate>(self)->dict);
    Py_TYPE(self)->tp_free(self);
}

PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

int add_update_type(PyObject* module) {
    update_type.tp_name = "dftrace_ai._native.QuickUpdate";
    update_type.tp_basicsize = sizeof(QuickUpdate);
    update_type.tp_flags =
        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_GC;
    update_type.tp_vectorcall_offset = offsetof(QuickUpdate, vectorcall);
    update_type.tp_call = PyVectorcall_Call;
    update_type.tp_new = update_new;
    update_type.tp_dealloc = update_dealloc;
    update_type.tp_traverse = update_traverse;
    update_type.tp_descr_get = update_bind;
    update_type.tp_dictoffset = offsetof(QuickUpdate, dict);
    update_type.tp_getset = properties;
    if (PyType_Ready(&update_type) < 0) return -1;
    return PyModule_AddObjectRef(module, "QuickUpdate", reinterpret_cast<PyObject*>(&update_type));
}

}  // namespace dftrace::py
