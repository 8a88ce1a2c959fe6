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

// What counts of pairs are made in. Of neighbours the codes are taken together: a pair is one store,
// and that is what counting has to wait for.
struct PairTables {
    // Codes are sign and magnitude in 128 steps: the last one is what is not in the window, and zero.
    static constexpr std::uint32_t magnitudes = 128, codes = 2 * magnitudes;
    static constexpr std::uint32_t outside = magnitudes - 1;
    static constexpr std::size_t most = 4;

    // Where pairs are often the same, they are counted in turn in so many tables: a count that was just
    // written is waited for.
    std::size_t in_use;
    std::uint32_t first;               // the least magnitude of the window, as a bin of histograms
    std::uint32_t* bins;               // what is not in the window, and not zero, is counted here
    std::uint32_t outside_of_sign[2];  // how many those were
    std::uint16_t* pairs[most];        // codes * codes each
};

// As QuickSums with no limits, and counts the first elements, so many as are a multiple of `pair_step`,
// whether or not the sums can be trusted.
using CountedSums = bool (*)(const void* data, std::size_t count, float shift, PairTables& tables,
                             Record& record);
constexpr std::size_t pair_step = 512;

// Adds a table of pairs to counts by code, and makes it zero.
using EmptyPairs = void (*)(std::uint16_t* pairs, std::uint32_t* by_code);
// The largest count of a pair.
using LargestPair = std::uint16_t (*)(const std::uint16_t* pairs);

struct BlockKernels {
    QuickSums quick_sums[3][3];   // [element][depth]; null where there is none
    Quantise quantise[3];         // [element]
    CountedSums counted_sums[3];  // [element]; null where there is none
    EmptyPairs empty_pairs;
    LargestPair largest_pair;
};

extern const BlockKernels portable_kernels;
#ifdef DFTRACE_AVX2
void quantise_fp32_avx2(const void*, void*, std::size_t, const QuantiseBlock&, QuantiseCounts*);
void quantise_bf16_avx2(const void*, void*, std::size_t, const QuantiseBlock&, QuantiseCounts*);
void quantise_fp16_avx2(const void*, void*, std::size_t, const QuantiseBlock&, QuantiseCounts*);
bool counted_sums_fp32_avx2(const void*, std::size_t, float, PairTables&, Record&);
bool counted_sums_bf16_avx2(const void*, std::size_t, float, PairTables&, Record&);
bool counted_sums_fp16_avx2(const void*, std::size_t, float, PairTables&, Record&);
void empty_pairs_avx2(std::uint16_t*, std::uint32_t*);
std::uint16_t largest_pair_avx2(const std::uint16_t*);
bool counted_sums_bf16_avx512(const void*, std::size_t, float, PairTables&, Record&);
bool counted_sums_fp16_avx512(const void*, std::size_t, float, PairTables&, Record&);
extern const BlockKernels avx2_kernels;
#endif

const BlockKernels& kernels_in_use() noexcept;

}  // namespace dftrace::tensor
