// The number formats of a tensor's elements that the kernels read.
#pragma once

#include <cstddef>

namespace dftrace::tensor {

enum class Element { fp32, bf16, fp16, fp64 };
constexpr int element_kinds = 4;

constexpr std::size_t bytes_of(Element element) {
    return element == Element::fp64 ? 8 : element == Element::fp32 ? 4 : 2;
}

}  // namespace dftrace::tensor
