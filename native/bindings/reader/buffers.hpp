// Columns of numbers that Python gives, and those that it gets.
#pragma once

#include <span>
#include <vector>

#include "python.hpp"

namespace dftrace::py {

struct Buffers {
    std::vector<Py_buffer> all;
    ~Buffers() {
        for (Py_buffer& one : all) PyBuffer_Release(&one);
    }
};

template <typename Value>
std::span<const Value> values_of(const Py_buffer& buffer) {
    return {static_cast<const Value*>(buffer.buf), static_cast<std::size_t>(buffer.len) / sizeof(Value)};
}

// Null with an exception set.
template <typename Value>
PyObject* bytes_of(const std::vector<Value>& values) {
    return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(values.data()),
                                     static_cast<Py_ssize_t>(values.size() * sizeof(Value)));
}

}  // namespace dftrace::py
