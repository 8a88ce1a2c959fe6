// The type `Sums`.
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "reader/holding.hpp"
#include "reader/module.hpp"
#include "told.hpp"

namespace dftrace::py {

namespace {

PyTypeObject* sums_type = nullptr;

PyObject* make(PyTypeObject* type, PyObject* arguments, PyObject*) {
    Py_ssize_t most_bytes = 0;
    if (!PyArg_ParseTuple(arguments, "n", &most_bytes)) return nullptr;
    if (most_bytes < 1) return PyErr_Format(PyExc_ValueError, "at least one byte");
    return new_holding<SpanSums>(
        type, [&] { return std::make_unique<SpanSums>(static_cast<std::size_t>(most_bytes)); });
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
        well = work_by<SpanSums>(object, [&](SpanSums& sums) { sums.add(spans); });
    }
    for (Py_buffer& each : given) PyBuffer_Release(&each);
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* take(PyObject* object, PyObject* arguments) {
    PyObject *other = nullptr, *wall = nullptr, *called = nullptr;
    if (!PyArg_ParseTuple(arguments, "O!OO", sums_type, &other, &wall, &called)) return nullptr;
    if (other == object) return PyErr_Format(PyExc_ValueError, "of itself nothing can be taken");
    SpanSums::Process process{held_by<SpanSums>(other), nullptr, wall == Py_Ellipsis, {}};
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
    if (!idle<SpanSums>(other)) return nullptr;
    bool& read = as<Holding<SpanSums>>(other)->busy;
    read = true;
    const bool well = work_by<SpanSums>(object, [&](SpanSums& sums) { sums.take(process); });
    read = false;
    return well ? Py_NewRef(Py_None) : nullptr;
}

PyObject* packed(PyObject* object, PyObject*) {
    std::vector<std::int64_t> numbers;
    if (!work_by<SpanSums>(object, [&](SpanSums& sums) { sums.pack(numbers); })) return nullptr;
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(numbers.data()),
                                     static_cast<Py_ssize_t>(numbers.size() * sizeof(std::int64_t)));
}

// Reads whole numbers of a list; false, and an error is set, where they are none.
bool numbers_of(PyObject* list, std::vector<std::int64_t>& numbers) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
        numbers.push_back(PyLong_AsLongLong(PyList_GET_ITEM(list, i)));
        if (PyErr_Occurred()) return false;
    }
    return true;
}

PyObject* take_packed(PyObject* object, PyObject* arguments) {
    PyObject *given = nullptr, *name_list = nullptr, *group_list = nullptr;
    if (!PyArg_ParseTuple(arguments, "SO!O", &given, &PyList_Type, &name_list, &group_list)) return nullptr;
    std::vector<std::int64_t> names, groups;
    if (!numbers_of(name_list, names)) return nullptr;
    if (group_list != Py_None && !PyList_Check(group_list))
        return PyErr_Format(PyExc_TypeError, "a list of groups, or None");
    if (group_list != Py_None && !numbers_of(group_list, groups)) return nullptr;
    std::vector<std::int64_t> numbers(static_cast<std::size_t>(PyBytes_GET_SIZE(given)) /
                                      sizeof(std::int64_t));
    std::memcpy(numbers.data(), PyBytes_AS_STRING(given), numbers.size() * sizeof(std::int64_t));
    bool taken = false;
    const bool well = work_by<SpanSums>(object, [&](SpanSums& sums) {
        taken = sums.take_packed(numbers.data(), numbers.size(), names,
                                 group_list == Py_None ? nullptr : &groups);
    });
    if (!well) return nullptr;
    if (!taken) return PyErr_Format(PyExc_ValueError, "these are no packed sums");
    return Py_NewRef(Py_None);
}

PyObject* forget(PyObject* object, PyObject*) {
    return work_by<SpanSums>(object, [](SpanSums& sums) { sums.forget(); }) ? Py_NewRef(Py_None) : nullptr;
}

PyObject* pair_of(const SpanGroup& group) { return tuple_told(group.first, group.second); }

PyObject* groups(PyObject* object, PyObject*) {
    std::vector<SpanGroup> all;
    if (!work_by<SpanSums>(object, [&](SpanSums& sums) { all = sums.groups(); })) return nullptr;
    return list_told(all, pair_of);
}

PyObject* rows(PyObject* object, PyObject* given) {
    const std::size_t most = PyLong_AsSize_t(given);
    if (PyErr_Occurred()) return nullptr;
    std::vector<SpanSums::Told> found;
    if (!work_by<SpanSums>(object, [&](SpanSums& sums) { found = sums.told(most); })) return nullptr;
    return list_told(found, [](const SpanSums::Told& row) {
        return figures_row(pair_of(row.group), told(row.name), row.figures);
    });
}

Py_ssize_t length(PyObject* object) { return static_cast<Py_ssize_t>(held_by<SpanSums>(object).size()); }

PyMethodDef methods[] = {
    {"add", add, METH_VARARGS,
     "add(first, second, name, start_ns, dur_ns, own_ns, chosen, /): add spans, columns of 64 bits: the two "
     "numbers of their groups (-2^63 for none), that of their names, starts (-1 for none), durations, and "
     "the part of these that no span inside takes. `chosen` has a byte for each, or is None for all; of "
     "others only the time counts from when to when their group went."},
    {"take", take, METH_VARARGS,
     "take(process, wall_ns, groups, /): add what was added to another one. `wall_ns`: how long it went, "
     "None where that is not known, `...` for what each of its groups did. `groups`: a number for each of "
     "its groups, None for the same ones."},
    {"packed", packed, METH_NOARGS, "packed(): all that was taken, as bytes for `take_packed`."},
    {"take_packed", take_packed, METH_VARARGS,
     "take_packed(packed, names, groups, /): take what another one had taken. `names`: a number for each of "
     "its names; `groups`: for each first number of its groups, None for the same ones."},
    {"forget", forget, METH_NOARGS,
     "forget(): forget what was added, so that another process can be; its rows still count in the length."},
    {"groups", groups, METH_NOARGS, "groups(): the two numbers of each group."},
    {"rows", rows, METH_O,
     "rows(most, /): group, name and figures of the greatest totals, wall time as `take` was told it."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace

int add_sums_type(PyObject* module) {
    Ref type =
        add_holding_type<SpanSums>(module, "dftrace_ai._reader.Sums",
                                   "Sums(most_bytes)\n--\n\nSums of spans by group and name, in so much "
                                   "memory; its length is how many rows there are.",
                                   make, methods, nullptr, {Py_sq_length, reinterpret_cast<void*>(length)});
    sums_type = as<PyTypeObject>(type.release());
    return sums_type ? 0 : -1;
}

}  // namespace dftrace::py
