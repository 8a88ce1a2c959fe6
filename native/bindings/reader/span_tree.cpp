// The type `SpanTree`: own time and parents of spans, block by block.
#include "reader/module.hpp"

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "dftrace/reading/traces/span_tree.hpp"

namespace dftrace::py {

namespace {

struct TreeObject {
    PyObject_HEAD std::unique_ptr<SpanTree> tree;
};

PyObject* make_tree(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"parents", nullptr};
    int parents = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "p", const_cast<char**>(names), &parents))
        return nullptr;
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    TreeObject* const self = as<TreeObject>(made.get());
    new (&self->tree) std::unique_ptr<SpanTree>();
    try {
        self->tree = std::make_unique<SpanTree>(parents != 0);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

void destroy(PyObject* object) {
    PyTypeObject* const type = Py_TYPE(object);
    as<TreeObject>(object)->tree.~unique_ptr();
    type->tp_free(object);
    Py_DECREF(type);
}

template <typename Value>
PyObject* bytes_of(const std::vector<Value>& values) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                     static_cast<Py_ssize_t>(values.size() * sizeof(Value)));
}

PyObject* add(PyObject* object, PyObject* block) {
    const Rows* const rows = rows_of(block);
    if (!rows) return nullptr;
    try {
        std::vector<std::int64_t> own;
        if (!as<TreeObject>(object)->tree->add(*rows, own)) return Py_NewRef(Py_None);
        return bytes_of(own);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyObject* parents(PyObject* object, PyObject*) { return bytes_of(as<TreeObject>(object)->tree->parents()); }

PyMethodDef tree_methods[] = {
    {"add", add, METH_O,
     "add(block, /): the own times of its finished spans, 64 bits each; None where their order does not "
     "tell them, from there on."},
    {"parents", parents, METH_NOARGS,
     "parents(): of each span so far the number of the one around it, 32 bits each; -1 for none."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot tree_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("SpanTree(parents)\n--\n\nTells which spans lie in which, from blocks of one "
                       "`EventScanner` in their order.")},
    {Py_tp_new, reinterpret_cast<void*>(make_tree)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, tree_methods},
    {0, nullptr}};

PyType_Spec tree_spec = {"dftrace_ai._reader.SpanTree", sizeof(TreeObject), 0, Py_TPFLAGS_DEFAULT,
                         tree_slots};

}  // namespace

int add_span_tree_type(PyObject* module) {
    const Ref type(PyType_FromSpec(&tree_spec));
    return type ? PyModule_AddObjectRef(module, "SpanTree", type.get()) : -1;
}

}  // namespace dftrace::py
