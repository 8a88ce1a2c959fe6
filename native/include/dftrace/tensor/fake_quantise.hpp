// A tensor as it would come back from an 8-bit floating-point format.
#pragma once

#include <cstddef>

#include "dftrace/tensor/elements.hpp"
#include "dftrace/tensor/fp8.hpp"
#include "dftrace/tensor/record.hpp"

namespace dftrace::tensor {

struct QuantiseOrder {
    Element element = Element::fp32;  // of input and output; not fp64
    Fp8Format format = Fp8Format::e4m3;
    float scale = 1.0f;
    bool counted = false;
    unsigned threads = 1;
};

// Writes `count` elements to `output`, or nothing where that is null; the kernel is asked to back a
// large output with large pages. Multiplies by the scale in fp32, clips, rounds to nearest even
// (subnormals kept), multiplies by the reciprocal of the scale and rounds to the element's own format.
// NaN stays NaN, infinities are clipped.
//
// Returns the neutral record but for n_total, scale_min and scale_max, and, where `counted`, n_over,
// n_under and square_error.
Record fake_quantise(const void* input, void* output, std::size_t count, const QuantiseOrder& order);

}  // namespace dftrace::tensor
