// Sums of a block and counts of its elements, with AVX2. Built for processors that have it: nothing here
// may have external linkage but what the table names.
#include "tensor/block_kernels.hpp"

#include <immintrin.h>

#include "tensor/avx2/avx2_lanes.hpp"
#include "tensor/avx2/counted_loop.hpp"
#include "tensor/avx2/quick_lanes.hpp"

namespace dftrace::tensor {

namespace {

INLINE __m256i load(const void* x) { return _mm256_loadu_si256(static_cast<const __m256i*>(x)); }

// The upper halves of sixteen elements, in an order of the format's own.
INLINE __m256i upper16(const float* x) {
    return _mm256_blend_epi16(load(x + 8), _mm256_srli_epi32(load(x), 16), 0x55);
}
INLINE __m256i upper16(const std::uint16_t* x) { return load(x); }

// Seldom: so far from the others these few are counted one by one.
template <class Format>
APART void count_outside(__m256i upper, __m256i outside, PairTables& tables) {
    alignas(32) std::uint16_t lanes[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), upper);
    // One bit of the two that there are for each.
    auto left = static_cast<std::uint32_t>(_mm256_movemask_epi8(outside)) & 0x5555'5555;
    for (; left; left &= left - 1) {
        const std::uint32_t bin = bin_of_upper<Format>(lanes[__builtin_ctz(left) / 2]);
        ++tables.bins[bin];
        ++tables.outside_of_sign[bin >> 11];
    }
}

// Compilers would make it anew in each step: there are not registers enough to keep it.
INLINE __m256i kept(__m256i constant) {
    asm("" : "+x"(constant));
    return constant;
}

template <class Format>
class Coder {
  public:
    explicit Coder(std::uint32_t window) : first_(kept(all16((window - Of::first_bin) << Of::bin_at))) {}

    // The codes of 32 elements, as pairs.
    INLINE void code(const typename Format::Stored* x, std::uint16_t* coded, PairTables& tables) const {
        __m256i upper[2], is_outside[2], codes[2];
        for (int half = 0; half < 2; ++half) {
            upper[half] = upper16(x + 16 * half);
            const __m256i magnitude = _mm256_and_si256(upper[half], magnitude_);
            // Below the window, the difference is larger than any place in it.
            const __m256i place = _mm256_min_epu16(_mm256_sub_epi16(magnitude, first_), last_place_);
            is_outside[half] = _mm256_and_si256(_mm256_cmpeq_epi16(place, last_place_),
                                                _mm256_cmpgt_epi16(magnitude, zero_bin_));
            codes[half] = _mm256_or_si256(_mm256_srli_epi16(place, Of::bin_at),
                                          _mm256_and_si256(_mm256_srli_epi16(upper[half], 8), sign_));
        }
        _mm256_store_si256(reinterpret_cast<__m256i*>(coded),
                           _mm256_or_si256(codes[0], _mm256_slli_epi16(codes[1], 8)));
        const __m256i any = _mm256_or_si256(is_outside[0], is_outside[1]);
        if (__builtin_expect(!_mm256_testz_si256(any, any), 0))
            for (int half = 0; half < 2; ++half) count_outside<Format>(upper[half], is_outside[half], tables);
    }

  private:
    using Of = Upper<Format>;
    __m256i first_;
    __m256i last_place_ = kept(all16(PairTables::outside << Of::bin_at));
    __m256i zero_bin_ = kept(all16(Of::zero_bin));
    __m256i magnitude_ = kept(all16(0x7FFF));
    __m256i sign_ = kept(all16(0x80));
};

template <class Lanes_>
struct Machine {
    using Lanes = Lanes_;
    using Format = typename Lanes::Format;
    template <bool shifted>
    using Moments = tensor::Moments<shifted>;
    using Coder = tensor::Coder<Format>;
    static constexpr std::size_t step = 32;

    template <class Moments>
    static INLINE void take32(Lanes& lanes, const typename Format::Stored* x, Moments& moments) {
        lanes.take(x, moments);
        lanes.take(x + Lanes::step, moments);
    }
};

}  // namespace

bool counted_sums_fp32_avx2(const void* data, std::size_t count, float shift, PairTables& tables,
                            Record& record) {
    return counted_sums<Machine<Fp32Lanes<0>>>(data, count, shift, tables, record);
}
bool counted_sums_bf16_avx2(const void* data, std::size_t count, float shift, PairTables& tables,
                            Record& record) {
    return counted_sums<Machine<HalfLanes<Bf16, 0>>>(data, count, shift, tables, record);
}
bool counted_sums_fp16_avx2(const void* data, std::size_t count, float shift, PairTables& tables,
                            Record& record) {
    return counted_sums<Machine<HalfLanes<Fp16, 0>>>(data, count, shift, tables, record);
}

void empty_pairs_avx2(std::uint16_t* pairs, std::uint32_t* by_code) {
    constexpr std::size_t codes = PairTables::codes, vectors = codes / 16;
    for (std::size_t upper = 0; upper < codes; ++upper) {
        auto* row = reinterpret_cast<__m256i*>(pairs + upper * codes);
        __m256i any = row[0];
        for (std::size_t i = 1; i < vectors; ++i) any = _mm256_or_si256(any, row[i]);
        if (_mm256_testz_si256(any, any)) continue;
        __m256i of_row = _mm256_setzero_si256();
        for (std::size_t i = 0; i < vectors; ++i) {
            const __m256i counts = row[i];
            row[i] = _mm256_setzero_si256();
            auto* lower = reinterpret_cast<__m256i*>(by_code + 16 * i);
            const __m256i low = _mm256_cvtepu16_epi32(_mm256_castsi256_si128(counts));
            const __m256i high = _mm256_cvtepu16_epi32(_mm256_extracti128_si256(counts, 1));
            _mm256_storeu_si256(lower, _mm256_add_epi32(_mm256_loadu_si256(lower), low));
            _mm256_storeu_si256(lower + 1, _mm256_add_epi32(_mm256_loadu_si256(lower + 1), high));
            of_row = _mm256_add_epi32(of_row, _mm256_add_epi32(low, high));
        }
        by_code[upper] += static_cast<std::uint32_t>(sum_of_u32(of_row));
    }
}

std::uint16_t largest_pair_avx2(const std::uint16_t* pairs) {
    const auto* vectors = reinterpret_cast<const __m256i*>(pairs);
    __m256i largest[4] = {vectors[0], vectors[1], vectors[2], vectors[3]};
    for (std::size_t i = 4; i < std::size_t{PairTables::codes} * PairTables::codes / 16; i += 4)
        for (std::size_t lane = 0; lane < 4; ++lane)
            largest[lane] = _mm256_max_epu16(largest[lane], vectors[i + lane]);
    return fold_lanes<std::uint16_t>(
        _mm256_max_epu16(_mm256_max_epu16(largest[0], largest[1]), _mm256_max_epu16(largest[2], largest[3])),
        greater);
}

}  // namespace dftrace::tensor
