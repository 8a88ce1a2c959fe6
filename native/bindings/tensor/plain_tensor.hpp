// Tensors of torch's whose elements lie in one stretch of memory as they are, found without torch's Python.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dftrace/tensor/elements.hpp"
#include "python.hpp"

namespace dftrace::py {

// Devices, as DLPack has them.
constexpr std::int32_t on_host = 1, on_gpu = 2;

// In which order the elements have to lie.
enum class Order { of_indices, any };

struct PlainTensor {
    const void* data = nullptr;
    std::size_t count = 0;  // two or more: a single element may stand for another number than lies there
    tensor::Element element = tensor::Element::fp32;
};

// False, with no error set, for any object of which the Python side has to find out.
bool find_plain(PyObject* object, std::int32_t device, Order order, PlainTensor& found);

// Whether its memory is there: sharded training frees that of parameters it does not need.
bool holds_elements(PyObject* object, const PlainTensor& plain);

}  // namespace dftrace::py
