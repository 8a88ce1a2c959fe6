// Values of C++ as Python has them. Null with an exception set; what is null already stays so.
#pragma once

#include <array>
#include <concepts>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "python.hpp"

namespace dftrace::py {

// A reference that is given up to what is made of it.
inline PyObject* told(PyObject* owned) noexcept { return owned; }
inline PyObject* told(bool value) { return PyBool_FromLong(value); }
inline PyObject* told(double value) { return PyFloat_FromDouble(value); }
inline PyObject* told(std::signed_integral auto value) { return PyLong_FromLongLong(value); }
inline PyObject* told(std::unsigned_integral auto value) { return PyLong_FromUnsignedLongLong(value); }
inline PyObject* told(std::string_view text) {
    return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
}
inline PyObject* told(const char* text) { return PyUnicode_FromString(text); }
template <typename Value>
PyObject* told(const std::optional<Value>& value) {
    return value ? told(*value) : Py_NewRef(Py_None);
}

template <typename... Each>
PyObject* tuple_told(const Each&... each) {
    std::array<Ref, sizeof...(Each)> made{Ref(told(each))...};
    for (const Ref& one : made)
        if (!one) return nullptr;
    PyObject* const tuple = PyTuple_New(sizeof...(Each));
    for (std::size_t at = 0; tuple && at < made.size(); ++at)
        PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(at), made[at].release());
    return tuple;
}

// A dictionary of members, which are references that are given up to it.
inline PyObject* dict_told(std::initializer_list<std::pair<const char*, PyObject*>> members) {
    Ref dict(PyDict_New());
    for (const auto& [name, value] : members) {
        const Ref held(value);
        if (dict && (!held || PyDict_SetItemString(dict.get(), name, held.get()) < 0)) dict = Ref();
    }
    return dict.release();
}

// A list of what `row` makes of each.
template <typename All, typename Row>
PyObject* list_told(const All& all, Row row) {
    Ref list(PyList_New(0));
    if (!list) return nullptr;
    for (const auto& each : all) {
        const Ref made(row(each));
        if (!made || PyList_Append(list.get(), made.get()) < 0) return nullptr;
    }
    return list.release();
}

inline PyObject* bytes_told(std::string_view bytes) {
    return PyBytes_FromStringAndSize(bytes.data(), static_cast<Py_ssize_t>(bytes.size()));
}

// The numbers of a column as they lie in memory.
template <typename Value>
PyObject* bytes_told(const std::vector<Value>& values) {
    return bytes_told({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)});
}

}  // namespace dftrace::py
