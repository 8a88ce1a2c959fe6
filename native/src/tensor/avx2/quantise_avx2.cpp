// Quantising a block with AVX2. Built for processors that have it: nothing here may have external
// linkage but the three entries.
#include "tensor/block_kernels.hpp"

#include <immintrin.h>

#include "tensor/avx2/avx2_lanes.hpp"
#include "tensor/quantise_one.hpp"

namespace dftrace::tensor {

namespace {

struct Quantiser {
    explicit Quantiser(const QuantiseBlock& block)
        : scale(_mm256_set1_ps(block.scale)),
          reciprocal(_mm256_set1_ps(block.reciprocal)),
          largest(_mm256_set1_ps(block.largest)),
          smallest_normal(_mm256_set1_ps(block.smallest_normal)),
          magic(_mm256_set1_ps(block.magic)),
          half(all32((1u << (block.dropped_bits - 1)) - 1)),
          kept(all32(~((1u << block.dropped_bits) - 1))),
          dropped(_mm_cvtsi32_si128(static_cast<int>(block.dropped_bits))) {}

    INLINE __m256 operator()(__m256 x) const {
        const __m256 sign_bit = _mm256_castsi256_ps(all32(~magnitude_mask));
        const __m256 scaled = _mm256_mul_ps(x, scale);
        const __m256 sign = _mm256_and_ps(scaled, sign_bit);
        // A NaN as the second operand is kept.
        const __m256 clipped = _mm256_min_ps(largest, _mm256_andnot_ps(sign_bit, scaled));
        const __m256i bits = _mm256_castps_si256(clipped);
        const __m256i odd = _mm256_and_si256(_mm256_srl_epi32(bits, dropped), all32(1));
        const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, half), odd);
        const __m256 normal = _mm256_castsi256_ps(_mm256_and_si256(sum, kept));
        const __m256 subnormal = _mm256_sub_ps(_mm256_add_ps(clipped, magic), magic);
        const __m256 small = _mm256_cmp_ps(clipped, smallest_normal, _CMP_NGE_UQ);  // and NaN
        const __m256 rounded = _mm256_blendv_ps(normal, subnormal, small);
        return _mm256_or_ps(_mm256_mul_ps(rounded, reciprocal), sign);
    }

    __m256 scale, reciprocal, largest, smallest_normal, magic;
    __m256i half, kept;
    __m128i dropped;
};

class Counter {
  public:
    explicit Counter(const QuantiseBlock& block)
        : over_(all32(block.over)), under_end_(all32(block.under_end)) {}

    INLINE void add(__m256 x, __m256 y) {
        const __m256i magnitude = _mm256_and_si256(_mm256_castps_si256(x), all32(magnitude_mask));
        const __m256i nan = _mm256_cmpgt_epi32(magnitude, all32(infinity_bits));
        const __m256i zero = _mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256());
        above_ = _mm256_sub_epi32(above_, _mm256_andnot_si256(nan, _mm256_cmpgt_epi32(magnitude, over_)));
        below_ =
            _mm256_sub_epi32(below_, _mm256_andnot_si256(zero, _mm256_cmpgt_epi32(under_end_, magnitude)));
        add_error(_mm256_castps256_ps128(x), _mm256_castps256_ps128(y), low_);
        add_error(_mm256_extractf128_ps(x, 1), _mm256_extractf128_ps(y, 1), high_);
    }

    void add_to(QuantiseCounts& counts) const {
        counts.over += sum_of_u32(above_);
        counts.under += sum_of_u32(below_);
        counts.square_error += sum_of(_mm256_add_pd(low_, high_));
    }

  private:
    static INLINE void add_error(__m128 x, __m128 y, __m256d& squares) {
        const __m256d error = _mm256_sub_pd(_mm256_cvtps_pd(x), _mm256_cvtps_pd(y));
        squares = _mm256_fmadd_pd(error, error, squares);
    }

    __m256i over_, under_end_;
    __m256i above_ = _mm256_setzero_si256(), below_ = above_;
    __m256d low_ = _mm256_setzero_pd(), high_ = low_;
};

struct Fp32Eight : Fp32 {
    static INLINE __m256 load(const float* x) { return _mm256_loadu_ps(x); }
    static INLINE __m256 store(float* output, __m256 y) {
        if (output) _mm256_storeu_ps(output, y);
        return y;
    }
};

struct Bf16Eight : Bf16 {
    static INLINE __m256 load(const std::uint16_t* x) {
        return spread(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    }
    static INLINE __m256 store(std::uint16_t* output, __m256 y) {
        const __m256i bits = _mm256_castps_si256(y);
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), all32(1));
        const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, all32(0x7FFF)), odd);
        const __m256 nan = _mm256_cmp_ps(y, y, _CMP_UNORD_Q);
        const __m256i kept =
            _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), all32(0x7FC0), _mm256_castps_si256(nan));
        const __m128i packed =
            _mm_packus_epi32(_mm256_castsi256_si128(kept), _mm256_extracti128_si256(kept, 1));
        if (output) _mm_storeu_si128(reinterpret_cast<__m128i*>(output), packed);
        return spread(packed);
    }

  private:
    static INLINE __m256 spread(__m128i stored) {
        return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(stored), 16));
    }
};

struct Fp16Eight : Fp16 {
    static INLINE __m256 load(const std::uint16_t* x) {
        return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
    }
    static INLINE __m256 store(std::uint16_t* output, __m256 y) {
        const __m128i packed = _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT);
        if (output) _mm_storeu_si128(reinterpret_cast<__m128i*>(output), packed);
        return _mm256_cvtph_ps(packed);
    }
};

template <class Eight, bool counted>
INLINE void quantise_lanes(const typename Eight::Stored* input, typename Eight::Stored* output,
                           std::size_t count, const QuantiseBlock& block, QuantiseCounts* counts) {
    const Quantiser quantiser(block);
    Counter counter(block);
    for (std::size_t i = 0; i < count; i += 8) {
        const __m256 x = Eight::load(input + i);
        const __m256 y = Eight::store(output ? output + i : nullptr, quantiser(x));
        if constexpr (counted) counter.add(x, y);
    }
    if constexpr (counted) counter.add_to(*counts);
}

template <class Eight>
INLINE void quantise(const void* input, void* output, std::size_t count, const QuantiseBlock& block,
                     QuantiseCounts* counts) {
    const auto* from = static_cast<const typename Eight::Stored*>(input);
    auto* to = static_cast<typename Eight::Stored*>(output);
    const std::size_t in_lanes = count / 8 * 8;
    if (!counts && to)
        quantise_lanes<Eight, false>(from, to, in_lanes, block, nullptr);
    else if (counts)
        quantise_lanes<Eight, true>(from, to, in_lanes, block, counts);
    quantise_one_by_one<Eight>(from + in_lanes, to ? to + in_lanes : nullptr, count - in_lanes, block,
                               counts);
}

}  // namespace

void quantise_fp32_avx2(const void* input, void* output, std::size_t count, const QuantiseBlock& block,
                        QuantiseCounts* counts) {
    quantise<Fp32Eight>(input, output, count, block, counts);
}

void quantise_bf16_avx2(const void* input, void* output, std::size_t count, const QuantiseBlock& block,
                        QuantiseCounts* counts) {
    quantise<Bf16Eight>(input, output, count, block, counts);
}

void quantise_fp16_avx2(const void* input, void* output, std::size_t count, const QuantiseBlock& block,
                        QuantiseCounts* counts) {
    quantise<Fp16Eight>(input, output, count, block, counts);
}

}  // namespace dftrace::tensor
