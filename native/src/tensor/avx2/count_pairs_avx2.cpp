// Counts of elements by their uppermost bits, two at a time, with AVX2. Built for processors that have
// it: nothing here may have external linkage but what the table names.
#include "tensor/avx2/count_pairs_avx2.hpp"

#include <immintrin.h>

#include "tensor/avx2/avx2_lanes.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

constexpr int bin_shift = 20;
constexpr std::size_t line_bytes = 64;
// The statistics read this next: it comes from memory while the counting waits for its stores.
constexpr std::size_t ahead_bytes = 128 * 1024;

// The bins of sixteen elements, sign and magnitude, in an order of the format's own.
INLINE __m256i bins_of(const float* x) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + 8));
    return _mm256_packus_epi32(_mm256_srli_epi32(low, bin_shift), _mm256_srli_epi32(high, bin_shift));
}

INLINE __m256i stored16(const std::uint16_t* x) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
}

template <class Format>
INLINE __m256i sixteen_bins(const typename Format::Stored* x) {
    if constexpr (sizeof(*x) == 4) {
        return bins_of(x);
    } else if constexpr (Format::infinity == Bf16::infinity) {
        return _mm256_srli_epi16(stored16(x), bin_shift - 16);
    } else {
        const Widened wide = widen16(stored16(x), Format{});
        return _mm256_packus_epi32(_mm256_srli_epi32(_mm256_castps_si256(wide.first), bin_shift),
                                   _mm256_srli_epi32(_mm256_castps_si256(wide.second), bin_shift));
    }
}

// Seldom: so far from the others these few are counted one by one.
APART void count_outside(__m256i first_bins, __m256i second_bins, __m256i first, __m256i second,
                         PairTables& tables) {
    alignas(32) std::uint16_t bins[pair_step];
    _mm256_store_si256(reinterpret_cast<__m256i*>(bins), first_bins);
    _mm256_store_si256(reinterpret_cast<__m256i*>(bins + 16), second_bins);
    // In the order in which packing leaves them, eight by eight.
    std::uint32_t left = static_cast<std::uint32_t>(_mm256_movemask_epi8(_mm256_packs_epi16(first, second)));
    constexpr std::uint32_t begins[4] = {0, 16, 8, 24};
    for (; left; left &= left - 1) {
        const auto bit = static_cast<std::uint32_t>(__builtin_ctz(left));
        const std::uint32_t bin = bins[begins[bit / 8] + bit % 8];
        ++tables.bins[bin];
        ++tables.outside_of_sign[bin >> 11];
    }
}

template <class Format, std::size_t in_use>
void count_in(const void* data, std::size_t count, PairTables& tables) {
    const auto* x = static_cast<const typename Format::Stored*>(data);
    const __m256i magnitude_bits = all16(0x7FF), sign_bit = all16(0x80);
    const __m256i first = all16(tables.first), outside = all16(PairTables::outside);
    static_assert(PairTables::most == 4);
    std::uint16_t* const pairs[] = {tables.pairs[0], tables.pairs[1 % in_use], tables.pairs[2 % in_use],
                                    tables.pairs[3 % in_use]};
    // What was coded is counted in the next step: it does not have to wait until it is written, and the
    // processor does both at a time.
    alignas(32) std::uint16_t coded[2][pair_step / 2];
    for (std::size_t i = 0, turn = 0;; i += pair_step, turn ^= 1) {
        if (i < count) {
            for (std::size_t byte = 0; byte < pair_step * sizeof *x; byte += line_bytes)
                _mm_prefetch(reinterpret_cast<const char*>(x + i) + ahead_bytes + byte, _MM_HINT_T1);
            __m256i bins[2], is_outside[2], codes[2];
            for (int half = 0; half < 2; ++half) {
                bins[half] = sixteen_bins<Format>(x + i + 16 * half);
                const __m256i magnitude = _mm256_and_si256(bins[half], magnitude_bits);
                const __m256i place = _mm256_min_epu16(_mm256_sub_epi16(magnitude, first), outside);
                is_outside[half] = _mm256_and_si256(_mm256_cmpeq_epi16(place, outside),
                                                    _mm256_cmpgt_epi16(magnitude, _mm256_setzero_si256()));
                const __m256i sign = _mm256_and_si256(_mm256_srli_epi16(bins[half], 4), sign_bit);
                codes[half] = _mm256_or_si256(place, sign);
            }
            _mm256_store_si256(reinterpret_cast<__m256i*>(coded[turn]),
                               _mm256_packus_epi16(codes[0], codes[1]));
            const __m256i any = _mm256_or_si256(is_outside[0], is_outside[1]);
            if (__builtin_expect(!_mm256_testz_si256(any, any), 0))
                count_outside(bins[0], bins[1], is_outside[0], is_outside[1], tables);
        }
        if (i > 0) {
            const std::uint16_t* before = coded[turn ^ 1];
#pragma GCC unroll 16
            for (std::size_t pair = 0; pair < pair_step / 2; ++pair) ++pairs[pair % in_use][before[pair]];
        }
        if (i >= count) return;
    }
}

template <class Format>
INLINE void count_pairs(const void* data, std::size_t count, PairTables& tables) {
    if (tables.in_use == 1)
        count_in<Format, 1>(data, count, tables);
    else
        count_in<Format, PairTables::most>(data, count, tables);
}

}  // namespace

void count_pairs_fp32_avx2(const void* data, std::size_t count, PairTables& tables) {
    count_pairs<Fp32>(data, count, tables);
}
void count_pairs_bf16_avx2(const void* data, std::size_t count, PairTables& tables) {
    count_pairs<Bf16>(data, count, tables);
}
void count_pairs_fp16_avx2(const void* data, std::size_t count, PairTables& tables) {
    count_pairs<Fp16>(data, count, tables);
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
