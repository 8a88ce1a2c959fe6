// The type `Sums`.
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "reader/module.hpp"
#include "reader/work.hpp"

namespace dftrace::py {

namespace {

PyTypeObject* sums_type = nullptr;

struct SumsObject {
    PyObject_HEAD std::unique_ptr<SpanSums> sums;
    bool busy;
};

SumsObject* of(PyObject* self) { return as<SumsObject>(self); }

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
    Py_ssize_t most_bytes = 0;
    if (!PyArg_ParseTuple(arguments, "n", &most_bytes)) return nullptr;
    if (most_bytes < 1) return PyErr_Format(PyExc_ValueError, "at least one byte");
    Ref made(type->tp_alloc(type, 0));
    if (!made) return nullptr;
    new (&of(made.get())->sums) std::unique_ptr<SpanSums>();
    try {
        of(made.get())->sums = std::make_unique<SpanSums>(static_cast<std::size_t>(most_bytes));
    } catch (const std::bad_alloc&) {
        return PyErr_NoMemory();
    }
    return made.release();
}

void destroy(PyObject* object) {
    of(object)->sums.~unique_ptr();
    PyTypeObject* const type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* add(PyObject* object, PyObject* arguments) {
    std::array<Py_buffer, 7> given{};
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*y*y*z*", &given[0], &given[1], &given[2], &given[3], &given[4],
                          &given[5], &given[6]))
        return nullptr;
    const auto bytes = given[0].len;
    bool alike = bytes % 8 == 0 && (!given[6].buf || given[6].len == bytes / 8);
    for (std::size_t i = 1; i < 6; ++i) alike = alike && given[i].len == bytes;
    bool well = alike;
    if (!alike) {
        PyErr_SetString(PyExc_ValueError, "columns of other lengths");
    } else {
        const auto column = [&](std::size_t i) { return static_cast<const std::int64_t*>(given[i].buf); };
        const SpanSums::Columns spans{static_cast<std::size_t>(bytes) / 8,
                                      column(0),
                                      column(1),
                                      column(2),
                                      column(3),
                                      column(4),
                                      column(5),
                                      static_cast<const char*>(given[6].buf)};
        well = work(of(object)->busy, [&](Interrupts&) { of(object)->sums->add(spans); });
    }
    for (Py_buffer& each : given) PyBuffer_Release(&each);
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* take(PyObject* object, PyObject* arguments) {
    PyObject *other = nullptr, *wall = nullptr, *called = nullptr;
    if (!PyArg_ParseTuple(arguments, "O!OO", sums_type, &other, &wall, &called)) return nullptr;
    if (other == object) return PyErr_Format(PyExc_ValueError, "of itself nothing can be taken");
    SpanSums::Process process{*of(other)->sums, nullptr, wall == Py_Ellipsis, {}};
    if (wall != Py_None && wall != Py_Ellipsis) process.wall = PyLong_AsLongLong(wall);
    std::vector<std::int64_t> groups;
    if (called != Py_None) {
        for (Py_ssize_t i = 0, size = PyList_Check(called) ? PyList_GET_SIZE(called) : 0; i < size; ++i)
            groups.push_back(PyLong_AsLongLong(PyList_GET_ITEM(called, i)));
        process.groups = &groups;
        if (!PyErr_Occurred() && groups.size() != process.sums.groups().size())
            PyErr_SetString(PyExc_ValueError, "a number for each group");
    }
    if (PyErr_Occurred()) return nullptr;
    bool& read = of(other)->busy;
    if (read) return PyErr_Format(PyExc_RuntimeError, "another thread reads by this object");
    read = true;
    const bool well = work(of(object)->busy, [&](Interrupts&) { of(object)->sums->take(process); });
    read = false;
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* pair_of(const SpanGroup& group) {
    return Py_BuildValue("LL", static_cast<long long>(group.first), static_cast<long long>(group.second));
}

PyObject* groups(PyObject* object, PyObject*) {
    std::vector<SpanGroup> all;
    if (!work(of(object)->busy, [&](Interrupts&) { all = of(object)->sums->groups(); })) return nullptr;
    Ref list(PyList_New(0));
    for (const SpanGroup& group : all) {
        const Ref pair(pair_of(group));
        if (!list || !pair || PyList_Append(list.get(), pair.get()) < 0) return nullptr;
    }
    return list.release();
}

PyObject* rows(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    std::vector<SpanSums::Told> told;
    if (!work(of(object)->busy, [&](Interrupts&) { told = of(object)->sums->told(most); })) return nullptr;
    Ref list(PyList_New(0));
    for (const SpanSums::Told& row : told) {
        const Ref made(figures_row(pair_of(row.group), PyLong_FromLongLong(row.name), row.figures));
        if (!list || !made || PyList_Append(list.get(), made.get()) < 0) return nullptr;
    }
    return list.release();
}

Py_ssize_t length(PyObject* object) { return static_cast<Py_ssize_t>(of(object)->sums->size()); }

PyMethodDef methods[] = {
    {"add", add, METH_VARARGS,
     "add(first, second, name, start_ns, dur_ns, own_ns, chosen, /): add spans, columns of 64 bits: the two "
     "numbers of their groups (-2^63 for none), that of their names, starts (-1 for none), durations, and "
     "the "
     "part of these that no span inside takes. `chosen` has a byte for each, or is None for all; of others "
     "only the time counts from when to when their group went."},
    {"take", take, METH_VARARGS,
     "take(process, wall_ns, groups, /): add what was added to another one. `wall_ns`: how long it went, "
     "None "
     "where that is not known, `...` for what each of its groups did. `groups`: a number for each of its "
     "groups, None for the same ones."},
    {"groups", groups, METH_NOARGS, "groups(): the two numbers of each group."},
    {"rows", rows, METH_O,
     "rows(most, /): group, name and figures of the greatest totals, wall time as `take` was told it."},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot slots[] = {
    {Py_tp_doc,
     const_cast<char*>("Sums(most_bytes)\n--\n\nSums of spans by group and name, in so much memory; "
                       "its length is how many rows there are.")},
    {Py_tp_new, reinterpret_cast<void*>(make)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {Py_sq_length, reinterpret_cast<void*>(length)},
    {0, nullptr}};

PyType_Spec spec = {"dftrace_ai._reader.Sums", sizeof(SumsObject), 0, Py_TPFLAGS_DEFAULT, slots};

}  // namespace

int add_sums_type(PyObject* module) {
    Ref type(PyType_FromSpec(&spec));
    if (!type || PyModule_AddObjectRef(module, "Sums", type.get()) < 0) return -1;
    sums_type = as<PyTypeObject>(type.release());
    return 0;
}

}  // namespace dftrace::py
