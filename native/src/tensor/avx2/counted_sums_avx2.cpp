// Sums of a block and counts of its elements by their uppermost bits, two at a time, with AVX2. Built for
// processors that have it: nothing here may have external linkage but what the table names.
#include "tensor/avx2/counted_sums_avx2.hpp"

#include <immintrin.h>

#include "tensor/avx2/avx2_lanes.hpp"
#include "tensor/avx2/quick_lanes.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

// Elements of a step: those of two steps of the sums.
constexpr std::size_t step = 32;
constexpr std::size_t line_bytes = 64;

// What was coded is counted two steps later: it does not have to wait until it is written, and the
// processor does both at a time.
constexpr std::size_t delay = 2, ring = 2 * delay;

// Codes are made of an element's upper half, which has all bits that its bin is made of.
template <class Format>
struct Upper {
    // Of fp32 and bf16 the bin is what lies above this bit; of fp16 it is the same but for its exponent.
    static constexpr int bin_at = Format::infinity == Fp16::infinity ? 7 : 4;
    static constexpr std::uint32_t first_bin = Format::infinity == Fp16::infinity ? (127 - 15) * 8 : 0;
    // The largest magnitude of the bin of zero. Of fp16 other numbers have an exponent in fp32.
    static constexpr unsigned zero_bin = Format::infinity == Fp16::infinity ? 0 : (1 << bin_at) - 1;
};

template <class Format>
std::uint32_t bin_of_upper(std::uint16_t upper) {
    if constexpr (Format::infinity == Fp16::infinity)
        return bits_of(Fp16::widen(upper)) >> 20;
    else
        return upper >> Upper<Format>::bin_at;
}

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
    auto left = static_cast<std::uint32_t>(_mm256_movemask_epi8(outside));
    for (; left; left &= left - 1) {
        const int bit = __builtin_ctz(left);
        if (bit % 2) continue;  // two bits for each
        const std::uint32_t bin = bin_of_upper<Format>(lanes[bit / 2]);
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
struct Constants {
    using Of = Upper<Format>;
    explicit Constants(std::uint32_t window) : first(kept(all16((window - Of::first_bin) << Of::bin_at))) {}

    __m256i first;
    __m256i last_place = kept(all16(PairTables::outside << Of::bin_at));
    __m256i zero_bin = kept(all16(Of::zero_bin));
    __m256i magnitude = kept(all16(0x7FFF));
    __m256i sign = kept(all16(0x80));
};

// The codes of a step's elements, as pairs.
template <class Format>
INLINE void code(const typename Format::Stored* x, const Constants<Format>& constants, std::uint16_t* coded,
                 PairTables& tables) {
    using Of = Upper<Format>;
    __m256i upper[2], is_outside[2], codes[2];
    for (int half = 0; half < 2; ++half) {
        upper[half] = upper16(x + 16 * half);
        const __m256i magnitude = _mm256_and_si256(upper[half], constants.magnitude);
        // Below the window, the difference is larger than any place in it.
        const __m256i place =
            _mm256_min_epu16(_mm256_sub_epi16(magnitude, constants.first), constants.last_place);
        is_outside[half] = _mm256_and_si256(_mm256_cmpeq_epi16(place, constants.last_place),
                                            _mm256_cmpgt_epi16(magnitude, constants.zero_bin));
        codes[half] = _mm256_or_si256(_mm256_srli_epi16(place, Of::bin_at),
                                      _mm256_and_si256(_mm256_srli_epi16(upper[half], 8), constants.sign));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(coded),
                       _mm256_or_si256(codes[0], _mm256_slli_epi16(codes[1], 8)));
    const __m256i any = _mm256_or_si256(is_outside[0], is_outside[1]);
    if (__builtin_expect(!_mm256_testz_si256(any, any), 0))
        for (int half = 0; half < 2; ++half) count_outside<Format>(upper[half], is_outside[half], tables);
}

template <std::size_t in_use>
INLINE void count_step(const std::uint16_t* coded, std::uint16_t* const* pairs) {
#pragma GCC unroll 16
    for (std::size_t pair = 0; pair < step / 2; ++pair) ++pairs[pair % in_use][coded[pair]];
}

template <class Lanes, bool shifted, std::size_t in_use>
bool sums_and_pairs(const void* data, std::size_t count, float shift, PairTables& tables, Record& record) {
    using Format = typename Lanes::Format;
    constexpr std::size_t fold = Lanes::step * Lanes::steps_a_fold;
    static_assert(pair_step % fold == 0 && fold % step == 0 && step == 2 * Lanes::step);
    static_assert(PairTables::most == 4 && pair_step / step >= delay);
    const auto* x = static_cast<const typename Format::Stored*>(data);
    const MagnitudeLimits limits{};
    Moments<shifted> moments(shift);
    Lanes lanes(limits);
    const Constants<Format> constants(tables.first);
    std::uint16_t* const pairs[] = {tables.pairs[0], tables.pairs[1 % in_use], tables.pairs[2 % in_use],
                                    tables.pairs[3 % in_use]};
    alignas(32) std::uint16_t coded[ring][step / 2];
    const std::size_t in_pairs = count / pair_step * pair_step;
    std::size_t i = 0, steps = 0;
    while (i < in_pairs) {
        for (const std::size_t end = i + fold; i < end; i += step, ++steps) {
            const auto* ahead = reinterpret_cast<const char*>(x + i);
            // Of fp32 memory is waited for most. It comes to the second-level cache without taking the
            // places in which what the tables lack in the first one is waited for.
            if constexpr (sizeof *x == 4) {
                _mm_prefetch(ahead + 4096, _MM_HINT_T1);
                _mm_prefetch(ahead + 4096 + line_bytes, _MM_HINT_T1);
            } else {
                _mm_prefetch(ahead + 2048, _MM_HINT_T0);
            }
            lanes.take(x + i, moments);
            lanes.take(x + i + Lanes::step, moments);
            code<Format>(x + i, constants, coded[steps % ring], tables);
            if (steps >= delay) count_step<in_use>(coded[(steps - delay) % ring], pairs);
        }
        moments.fold();
    }
    for (std::size_t left = steps < delay ? steps : delay; left > 0; --left)
        count_step<in_use>(coded[(steps - left) % ring], pairs);
    while (i + Lanes::step <= count) {
        for (const std::size_t end = i + fold; i < end && i + Lanes::step <= count; i += Lanes::step)
            lanes.take(x + i, moments);
        moments.fold();
    }
    return record_of_totals<Lanes, 0>({moments, lanes}, x, i, count, shift, limits, record);
}

template <class Lanes>
INLINE bool counted_sums(const void* data, std::size_t count, float shift, PairTables& tables,
                         Record& record) {
    if (tables.in_use == 1)
        return shift == 0.0f ? sums_and_pairs<Lanes, false, 1>(data, count, shift, tables, record)
                             : sums_and_pairs<Lanes, true, 1>(data, count, shift, tables, record);
    return shift == 0.0f ? sums_and_pairs<Lanes, false, PairTables::most>(data, count, shift, tables, record)
                         : sums_and_pairs<Lanes, true, PairTables::most>(data, count, shift, tables, record);
}

}  // namespace

bool counted_sums_fp32_avx2(const void* data, std::size_t count, float shift, PairTables& tables,
                            Record& record) {
    return counted_sums<Fp32Lanes<0>>(data, count, shift, tables, record);
}
bool counted_sums_bf16_avx2(const void* data, std::size_t count, float shift, PairTables& tables,
                            Record& record) {
    return counted_sums<HalfLanes<Bf16, 0>>(data, count, shift, tables, record);
}
bool counted_sums_fp16_avx2(const void* data, std::size_t count, float shift, PairTables& tables,
                            Record& record) {
    return counted_sums<HalfLanes<Fp16, 0>>(data, count, shift, tables, record);
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
