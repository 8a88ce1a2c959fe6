// One number to an 8-bit format and back. Each file that includes this has its own copy.
#pragma once

#include <cstdint>

#include "tensor/block_kernels.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

[[maybe_unused]] inline float quantised(float x, const QuantiseBlock& block) {
    const float scaled = x * block.scale;
    if (scaled != scaled) return scaled;
    const std::uint32_t sign = bits_of(scaled) & ~magnitude_mask;
    float magnitude = float_of(bits_of(scaled) & magnitude_mask);
    if (magnitude > block.largest) magnitude = block.largest;
    if (magnitude < block.smallest_normal) {
        const float rounded = magnitude + block.magic;
        magnitude = rounded - block.magic;
    } else {
        const std::uint32_t bits = bits_of(magnitude), half = (1u << (block.dropped_bits - 1)) - 1;
        const std::uint32_t rounded = bits + half + (bits >> block.dropped_bits & 1);
        magnitude = float_of(rounded & ~((1u << block.dropped_bits) - 1));
    }
    return float_of(bits_of(magnitude * block.reciprocal) | sign);
}

template <class Format>
void quantise_one_by_one(const typename Format::Stored* input, typename Format::Stored* output,
                         std::size_t count, const QuantiseBlock& block, QuantiseCounts* counts) {
    for (std::size_t i = 0; i < count; ++i) {
        const float x = Format::widen(input[i]);
        const auto y = Format::narrow(quantised(x, block));
        if (output) output[i] = y;
        if (!counts) continue;
        const std::uint32_t magnitude = bits_of(x) & magnitude_mask;
        counts->over += magnitude > block.over && magnitude <= infinity_bits;
        counts->under += magnitude != 0 && magnitude < block.under_end;
        const double error = static_cast<double>(x) - static_cast<double>(Format::widen(y));
        counts->square_error += error * error;
    }
}

}  // namespace

}  // namespace dftrace::tensor
