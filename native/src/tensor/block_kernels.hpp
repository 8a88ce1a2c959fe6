// The inner loops, one table for each set of instructions.
//
// This header is read by files that are built for processors other than the least one: it must not
// hold anything for which code is emitted that other files could be linked to.
#pragma once

#include <cstddef>
#include <cstdint>

#include "dftrace/tensor/elements.hpp"
#include "dftrace/tensor/record.hpp"

namespace dftrace::tensor {

// Magnitudes as bit patterns of the element's format: |x| > over, 0 < |x| < under_end.
struct MagnitudeLimits {
    std::uint32_t over;
    std::uint32_t under_end;
};

// Sums one block in fp32 lanes, as (x - shift), and tells whether the result can be trusted: false
// where there are NaN, infinities, or squares that do not fit.
using QuickSums = bool (*)(const void* data, std::size_t count, float shift, const MagnitudeLimits& limits,
                           Record& record);

struct QuantiseBlock {
    float scale;
    float reciprocal;
    float largest;
    float smallest_normal;
    float magic;                 // added and taken off again, it rounds to multiples of the smallest number
    std::uint32_t dropped_bits;  // of the fp32 mantissa
    std::uint32_t over;          // magnitudes as bit patterns of fp32
    std::uint32_t under_end;
};

struct QuantiseCounts {
    std::uint64_t over;
    std::uint64_t under;
    double square_error;
};

// `output` may be null, `counts` may be null; counts are added to.
using Quantise = void (*)(const void* input, void* output, std::size_t count, const QuantiseBlock& block,
                          QuantiseCounts* counts);

struct BlockKernels {
    QuickSums quick_sums[3][3];  // [element][depth]; null where there is none
    Quantise quantise[3];        // [element]
};

extern const BlockKernels portable_kernels;
#ifdef DFTRACE_AVX2
extern const BlockKernels avx2_kernels;
#endif

const BlockKernels& kernels_in_use() noexcept;

}  // namespace dftrace::tensor
