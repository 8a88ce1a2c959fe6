// Sums of a block with AVX2. Built for processors that have it: nothing here may have external
// linkage but the table.
#include <immintrin.h>

#include "tensor/avx2/quick_lanes.hpp"
#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

namespace {

constexpr std::size_t prefetched_bytes = 2048;

template <class Lanes, int depth, bool shifted>
bool sums_around(const void* data, std::size_t count, float shift, const MagnitudeLimits& limits,
                 Record& record) {
    const auto* x = static_cast<const typename Lanes::Format::Stored*>(data);
    Moments<shifted> moments(shift);
    Lanes lanes(limits);
    const std::size_t in_lanes = count / Lanes::step * Lanes::step;
    std::size_t i = 0;
    while (i < in_lanes) {
        const std::size_t left = in_lanes - i, fold = Lanes::step * Lanes::steps_a_fold;
        const std::size_t end = i + (left < fold ? left : fold);
        for (; i < end; i += Lanes::step) {
            // Past the end of a page the processor does not look ahead by itself.
            _mm_prefetch(reinterpret_cast<const char*>(x + i) + prefetched_bytes, _MM_HINT_T0);
            lanes.take(x + i, moments);
        }
        moments.fold();
    }
    return record_of_totals<Lanes, depth>({moments, lanes}, x, i, count, shift, limits, record);
}

template <class Lanes, int depth>
bool quick_sums(const void* data, std::size_t count, float shift, const MagnitudeLimits& limits,
                Record& record) {
    return shift == 0.0f ? sums_around<Lanes, depth, false>(data, count, shift, limits, record)
                         : sums_around<Lanes, depth, true>(data, count, shift, limits, record);
}

}  // namespace

const BlockKernels avx2_kernels = {
    {{quick_sums<Fp32Lanes<0>, 0>, quick_sums<Fp32Lanes<1>, 1>, quick_sums<Fp32Lanes<2>, 2>},
     {quick_sums<HalfLanes<Bf16, 0>, 0>, quick_sums<HalfLanes<Bf16, 1>, 1>,
      quick_sums<HalfLanes<Bf16, 2>, 2>},
     {quick_sums<HalfLanes<Fp16, 0>, 0>, quick_sums<HalfLanes<Fp16, 1>, 1>,
      quick_sums<HalfLanes<Fp16, 2>, 2>}},
    {quantise_fp32_avx2, quantise_bf16_avx2, quantise_fp16_avx2},
    {counted_sums_fp32_avx2, counted_sums_bf16_avx2, counted_sums_fp16_avx2},
    empty_pairs_avx2,
    largest_pair_avx2};

}  // namespace dftrace::tensor
