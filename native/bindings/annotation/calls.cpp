// What is done here, and what is handed to the methods that are written in Python.
#include "annotation/node.hpp"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <vector>

#include "annotation/span.hpp"
#include "parts.hpp"

namespace dftrace::py {

namespace {

// What a call with numbers makes, and what takes all other calls.
struct Quick {
    PyTypeObject* instance;
    PyObject* long_way;
};
// All for as long as the process lives. The tree's own come first, and are nearly all that is ever called.
std::vector<std::pair<PyTypeObject*, Quick>> quick_types;
Quick of_the_tree{nullptr, nullptr};

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

PyObject* quick_call(const Quick& quick, PyObject* self, PyObject* const* arguments, std::size_t count,
                     PyObject* names) {
    Numbers numbers;
    if (PyVectorcall_NARGS(count) == 0 && read_numbers(arguments, names, numbers)) {
        Node* made = made_by_call(quick.instance, as<Node>(self), numbers);
        if (made || PyErr_Occurred()) return object_of(made);
    }
    return call_method(quick.long_way, self, arguments, count, names);
}

const Quick* quick_of(PyTypeObject* type) noexcept {
    for (const auto& [kind, quick] : quick_types)
        if (kind == type) return &quick;
    return nullptr;
}

PyObject* node_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return quick_call(of_the_tree, self, arguments, count, names);
}

// Of a kind whose calls make another kind.
PyObject* other_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    const Quick* quick = quick_of(Py_TYPE(self));
    return quick_call(quick ? *quick : of_the_tree, self, arguments, count, names);
}

// Since 3.12 a type has it from the one above that a call of it needs no tuple.
PyObject* node_long_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return call_method(of_the_tree.long_way, self, arguments, count, names);
}

}  // namespace

vectorcallfunc call_of(PyTypeObject* type) noexcept {
    const Quick* quick = quick_of(type);
    return !quick ? node_long_call : quick->instance == of_the_tree.instance ? node_call : other_call;
}

PyObject* quick_calls(PyObject*, PyObject* arguments) {
    PyTypeObject *kind = nullptr, *instance = nullptr;
    if (!PyArg_ParseTuple(arguments, "O!O!", &PyType_Type, &kind, &PyType_Type, &instance)) return nullptr;
    if (!PyType_IsSubtype(kind, &node_type) || !PyType_IsSubtype(instance, &node_type))
        return PyErr_Format(PyExc_TypeError, "quick_calls is for types of nodes");
    PyObject* const long_way = PyObject_GetAttrString(object_of(instance), "__call__");
    if (!long_way) return nullptr;
    Py_INCREF(object_of(kind));
    Py_INCREF(object_of(instance));
    quick_types.push_back({kind, {instance, long_way}});
    if (!of_the_tree.instance) of_the_tree = quick_types.back().second;
    kind->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    Py_RETURN_NONE;
}

namespace {

struct QuickMethod {
    PyObject_HEAD vectorcallfunc vectorcall;
    PyObject* function;
    PyObject* dict;
};

PyTypeObject method_type = {PyVarObject_HEAD_INIT(nullptr, 0)};

PyObject* long_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    return PyObject_Vectorcall(as<QuickMethod>(self)->function, arguments, count, names);
}

PyObject* update_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    Numbers numbers;
    if (PyVectorcall_NARGS(count) == 1 && names && PyObject_TypeCheck(arguments[0], &node_type) &&
        read_numbers(arguments + 1, names, numbers)) {
        if (numbers.count && !merge_numbers(as<Node>(arguments[0]), numbers)) return nullptr;
        return Py_NewRef(arguments[0]);
    }
    return long_call(self, arguments, count, names);
}

// A node alone, of a type whose spans are native in every form.
bool is_quick_node(PyObject* const* arguments, std::size_t count) noexcept {
    return PyVectorcall_NARGS(count) == 1 && PyObject_TypeCheck(arguments[0], &node_type) &&
           as<Node>(arguments[0])->vectorcall == node_call;
}

PyObject* start_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    Numbers numbers;
    if (!is_quick_node(arguments, count) || !read_numbers(arguments + 1, names, numbers))
        return long_call(self, arguments, count, names);
    Node* node = as<Node>(arguments[0]);
    if (!numbers.count || !node->enabled) {
        start_span(node, node);
        Py_RETURN_NONE;
    }
    Node* shown = made_by_call(of_the_tree.instance, node, numbers);
    if (!shown) return PyErr_Occurred() ? nullptr : long_call(self, arguments, count, names);
    start_span(node, shown);
    Py_DECREF(object_of(shown));
    Py_RETURN_NONE;
}

// What was not started is told of by the Python side.
PyObject* stop_call(PyObject* self, PyObject* const* arguments, std::size_t count, PyObject* names) {
    if (!names && is_quick_node(arguments, count) && stop_span(as<Node>(arguments[0]))) Py_RETURN_NONE;
    return long_call(self, arguments, count, names);
}

PyObject* method_bind(PyObject* self, PyObject* object, PyObject*) {
    return !object || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

PyObject* method_new(PyTypeObject* type, PyObject* positional, PyObject*) {
    PyObject* function = nullptr;
    const char* what = nullptr;
    if (!PyArg_ParseTuple(positional, "O!s", &PyFunction_Type, &function, &what)) return nullptr;
    const vectorcallfunc call = std::string_view(what) == "update"  ? update_call
                                : std::string_view(what) == "start" ? start_call
                                : std::string_view(what) == "stop"  ? stop_call
                                                                    : nullptr;
    if (!call) return PyErr_Format(PyExc_ValueError, "there is no quick way to %s", what);
    QuickMethod* self = as<QuickMethod>(type->tp_alloc(type, 0));
    if (!self) return nullptr;
    self->vectorcall = call;
    self->function = Py_NewRef(function);
    return object_of(self);
}

// By its name, as a function is.
PyObject* method_reduce(PyObject* self, PyObject*) { return PyObject_GetAttrString(self, "__qualname__"); }

PyMethodDef methods[] = {{"__reduce__", method_reduce, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
PyGetSetDef properties[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
                            {nullptr, nullptr, nullptr, nullptr, nullptr}};

}  // namespace

int add_method_type(PyObject* module) {
    describe<QuickMethod>(method_type, "dftrace_ai._native.QuickMethod", nullptr,
                          Py_TPFLAGS_METHOD_DESCRIPTOR | Py_TPFLAGS_HAVE_GC);
    Owning<QuickMethod, &QuickMethod::function, &QuickMethod::dict>::put_into(method_type);
    method_type.tp_new = method_new;
    method_type.tp_descr_get = method_bind;
    method_type.tp_methods = methods;
    method_type.tp_getset = properties;
    return add_type(module, method_type);
}

}  // namespace dftrace::py
