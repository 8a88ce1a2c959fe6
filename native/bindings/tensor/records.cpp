// Tuples to records and back.
#include "tensor/records.hpp"

#include <cmath>
#include <cstring>

#include "dftrace/tensor/statistics.hpp"

namespace dftrace::py {

using namespace dftrace::tensor;

namespace {

// What records are made as: a class of tuples whose numbers have names, once it is known.
PyTypeObject* record_class = &PyTuple_Type;

// Many of a record's numbers count what there is none of: their zero is made once.
PyObject* number(double value) {
    if (value != 0 || std::signbit(value)) return PyFloat_FromDouble(value);
    static PyObject* zero = nullptr;
    if (!zero && !(zero = PyFloat_FromDouble(0.0))) return nullptr;
    Py_INCREF(zero);
    return zero;
}

// The numbers of a record that comes back; the first that is none leaves a Python error.
bool read_record(PyObject* given, Record& record) {
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) != static_cast<Py_ssize_t>(record_fields)) {
        PyErr_Format(PyExc_TypeError, "a record is a tuple of %zu numbers", record_fields);
        return false;
    }
    double fields[record_fields];
    for (std::size_t i = 0; i < record_fields; ++i) {
        PyObject* field = PyTuple_GET_ITEM(given, static_cast<Py_ssize_t>(i));
        if (PyFloat_CheckExact(field)) {
            fields[i] = PyFloat_AS_DOUBLE(field);
            continue;
        }
        fields[i] = PyFloat_AsDouble(field);
        if (fields[i] == -1.0 && PyErr_Occurred()) return false;
    }
    std::memcpy(&record, fields, sizeof record);
    return true;
}

bool read_two_records(PyObject* const* given, Py_ssize_t given_count, Record& first, Record& second) {
    if (given_count == 2) return read_record(given[0], first) && read_record(given[1], second);
    PyErr_SetString(PyExc_TypeError, "two records were expected");
    return false;
}

// The statistic of that name; one that `numbers` has not leaves a KeyError.
bool find_statistic(PyObject* numbers, PyObject* name, Statistic& statistic) {
    PyObject* found = PyDict_GetItemWithError(numbers, name);
    if (!found) {
        if (!PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, name);
        return false;
    }
    const long value = PyLong_AsLong(found);
    if (value < 0 || value >= statistic_kinds) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "there is no statistic of that number");
        return false;
    }
    statistic = static_cast<Statistic>(value);
    return true;
}

// With the nine digits that tell a number of fp32 from all others.
PyObject* shortened(double value) {
    char* digits = PyOS_double_to_string(value, 'g', 9, 0, nullptr);
    if (!digits) return nullptr;
    const double short_value = PyOS_string_to_double(digits, nullptr, nullptr);
    PyMem_Free(digits);
    return PyErr_Occurred() ? nullptr : PyFloat_FromDouble(short_value);
}

// JSON has no NaN and no infinities: they become null, with the text beside it.
bool tell_as_text(PyObject* told, PyObject* name, PyObject* value) {
    const Ref text(PyObject_Str(value)), beside(PyUnicode_FromFormat("%U_str", name));
    return text && beside && PyDict_SetItem(told, name, Py_None) == 0 &&
           PyDict_SetItem(told, beside.get(), text.get()) == 0;
}

}  // namespace

PyObject* record_tuple(const Record& record) {
    double fields[record_fields];
    std::memcpy(fields, &record, sizeof record);
    Ref tuple(record_class->tp_alloc(record_class, record_fields));
    if (!tuple) return nullptr;
    for (std::size_t i = 0; i < record_fields; ++i) {
        PyObject* field = number(fields[i]);
        if (!field) return nullptr;
        PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), field);
    }
    return tuple.release();
}

PyObject* make_records_as(PyObject*, PyObject* given) {
    auto* type = reinterpret_cast<PyTypeObject*>(given);
    if (!PyType_Check(given) || !PyType_IsSubtype(type, &PyTuple_Type) ||
        type->tp_basicsize != PyTuple_Type.tp_basicsize)
        return PyErr_Format(PyExc_TypeError, "a class of tuples with nothing else in them is accepted");
    Py_INCREF(given);
    record_class = type;  // one class for as long as the process lives
    Py_RETURN_NONE;
}

PyObject* merge_records(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Record whole, other;
    if (!read_two_records(given, given_count, whole, other)) return nullptr;
    merge(whole, other);
    return record_tuple(whole);
}

PyObject* record_with_quantisation(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Record record, quantised;
    if (!read_two_records(given, given_count, record, quantised)) return nullptr;
    return record_tuple(with_quantisation(record, quantised));
}

PyObject* told_values(PyObject*, PyObject* values) {
    if (!PyDict_Check(values)) return PyErr_Format(PyExc_TypeError, "a dict of fractions was expected");
    const Ref told(PyDict_New()), finite(PyDict_New());
    if (!told || !finite) return nullptr;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(values, &at, &name, &value)) {
        if (!PyUnicode_Check(name) || !PyFloat_Check(value))
            return PyErr_Format(PyExc_TypeError, "fractions by name were expected");
        if (!std::isfinite(PyFloat_AS_DOUBLE(value))) {
            if (!tell_as_text(told.get(), name, value)) return nullptr;
            continue;
        }
        const Ref number(shortened(PyFloat_AS_DOUBLE(value)));
        if (!number || PyDict_SetItem(told.get(), name, number.get()) < 0 ||
            PyDict_SetItem(finite.get(), name, number.get()) < 0)
            return nullptr;
    }
    return PyTuple_Pack(2, told.get(), finite.get());
}

PyObject* final_values(PyObject*, PyObject* const* given, Py_ssize_t given_count) {
    Record record;
    if (given_count != 3 || !PyDict_CheckExact(given[2]))
        return PyErr_Format(PyExc_TypeError, "a record, names and their numbers were expected");
    if (!read_record(given[0], record)) return nullptr;
    Ref values(PyDict_New());
    if (!values || record.n_total == 0) return values.release();
    const Ref names(PySequence_Fast(given[1], "statistics are a sequence of names"));
    if (!names) return nullptr;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(names.get()); ++i) {
        PyObject* name = PySequence_Fast_GET_ITEM(names.get(), i);
        Statistic statistic;
        if (!find_statistic(given[2], name, statistic)) return nullptr;
        const Ref value(PyFloat_FromDouble(static_cast<double>(final_value(record, statistic))));
        if (!value || PyDict_SetItem(values.get(), name, value.get()) < 0) return nullptr;
    }
    return values.release();
}

}  // namespace dftrace::py
