// Tensors of torch whose elements lie in one stretch of memory, as they are: told without torch's Python
// side.
#pragma once

#include <cstddef>

#include "dftrace/tensor/elements.hpp"
#include "python.hpp"

namespace dftrace::py {

struct PlainTensor {
    const void* data = nullptr;
    std::size_t count = 0;  // two or more: a single element may stand for another number than lies there
    tensor::Element element = tensor::Element::fp32;
};

// plain_tensors_are(class, class): of these two classes exactly. Tells whether they say what they hold.
PyObject* plain_tensors_are(PyObject* module, PyObject* arguments);

// False, with no error set, for any object of which the Python side has to find out.
[[nodiscard]] bool find_plain(PyObject* object, PlainTensor& found);

}  // namespace dftrace::py
