// The type `SpanTree`: own time and parents of spans, block by block.
#include "reader/module.hpp"

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "dftrace/reading/traces/span_tree.hpp"
#include "reader/holding.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

PyObject* make_tree(PyTypeObject* type, PyObject* arguments, PyObject* by_name) {
    static const char* names[] = {"parents", nullptr};
    int parents = 0;
    if (!PyArg_ParseTupleAndKeywords(arguments, by_name, "p", const_cast<char**>(names), &parents))
        return nullptr;
    return new_holding<SpanTree>(type, [&] { return std::make_unique<SpanTree>(parents != 0); });
}

PyObject* add(PyObject* object, PyObject* block) {
    const Rows* const rows = rows_of(block);
    if (!rows) return nullptr;
    try {
        std::vector<std::int64_t> own;
        return held_by<SpanTree>(object).add(*rows, own) ? bytes_told(own) : Py_NewRef(Py_None);
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
}

PyObject* parents(PyObject* object, PyObject*) { return bytes_told(held_by<SpanTree>(object).parents()); }

PyMethodDef tree_methods[] = {
    {"add", add, METH_O,
     "add(block, /): the own times of its finished spans, 64 bits each; None where their order does not "
     "tell them, from there on."},
    {"parents", parents, METH_NOARGS,
     "parents(): of each span so far the number of the one around it, 32 bits each; -1 for none."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_span_tree_type(PyObject* module) {
    return add_holding_type<SpanTree>(
               module, "dftrace_ai._reader.SpanTree",
               "SpanTree(parents)\n--\n\nTells which spans lie in which, from blocks of "
               "one `EventScanner` in their order.",
               make_tree, tree_methods)
               ? 0
               : -1;
}

}  // namespace dftrace::py
