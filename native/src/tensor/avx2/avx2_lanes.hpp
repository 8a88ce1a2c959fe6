// Small things done with AVX2 registers. Only for files that are built for it; all of it is internal
// to the file that includes it.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "tensor/number_formats.hpp"

#define INLINE inline __attribute__((always_inline))
// Taking a register's lanes apart in place makes compilers keep it in memory, in the loop as well.
#define APART [[maybe_unused]] __attribute__((noinline))

namespace dftrace::tensor {

namespace {

[[maybe_unused]] INLINE __m256i all32(std::uint32_t value) {
    return _mm256_set1_epi32(static_cast<int>(value));
}
[[maybe_unused]] INLINE __m256i all16(unsigned value) {
    return _mm256_set1_epi16(static_cast<short>(static_cast<std::uint16_t>(value)));
}

[[maybe_unused]] INLINE __m256d add_widened(__m256d total, __m256 values) {
    const __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(values));
    const __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(values, 1));
    return _mm256_add_pd(total, _mm256_add_pd(low, high));
}

// Sixteen numbers as fp32, in an order of the format's own.
struct Widened {
    __m256 first, second;
};

[[maybe_unused]] INLINE Widened widen16(__m256i stored, Bf16) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(stored, 16)),
            _mm256_castsi256_ps(_mm256_and_si256(stored, all32(0xFFFF'0000)))};
}

[[maybe_unused]] INLINE Widened widen16(__m256i stored, Fp16) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(stored)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(stored, 1))};
}

// Folds of a register's lanes. They run once a block.
template <class Number, class Fold>
INLINE Number fold_lanes(__m256i lanes, Fold fold) {
    constexpr std::size_t count = sizeof lanes / sizeof(Number);
    alignas(32) Number numbers[count];
    _mm256_store_si256(reinterpret_cast<__m256i*>(numbers), lanes);
    Number result = numbers[0];
    for (std::size_t i = 1; i < count; ++i) result = fold(result, numbers[i]);
    return result;
}

constexpr auto lesser = [](auto a, auto b) { return b < a ? b : a; };
constexpr auto greater = [](auto a, auto b) { return b > a ? b : a; };

// Of numbers: half of the lanes with the other half, and again.
APART float least_of(__m256 lanes) {
    const __m128 four = _mm_min_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    const __m128 two = _mm_min_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_min_ss(two, _mm_movehdup_ps(two)));
}
APART float greatest_of(__m256 lanes) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

APART std::uint32_t least_of_u32(__m256i lanes) { return fold_lanes<std::uint32_t>(lanes, lesser); }
APART std::uint16_t least_of_u16(__m256i lanes) { return fold_lanes<std::uint16_t>(lanes, lesser); }
APART std::int16_t least_of_i16(__m256i lanes) { return fold_lanes<std::int16_t>(lanes, lesser); }
APART std::int16_t greatest_of_i16(__m256i lanes) { return fold_lanes<std::int16_t>(lanes, greater); }

APART std::uint64_t sum_of_u32(__m256i lanes) {
    alignas(32) std::uint32_t numbers[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(numbers), lanes);
    std::uint64_t sum = 0;
    for (const std::uint32_t number : numbers) sum += number;
    return sum;
}

APART std::uint64_t sum_of_u16(__m256i lanes) {
    alignas(32) std::uint16_t numbers[16];
    _mm256_store_si256(reinterpret_cast<__m256i*>(numbers), lanes);
    std::uint64_t sum = 0;
    for (const std::uint16_t number : numbers) sum += number;
    return sum;
}

APART double sum_of(__m256d lanes) {
    const __m128d low = _mm256_castpd256_pd128(lanes), high = _mm256_extractf128_pd(lanes, 1);
    const double first = _mm_cvtsd_f64(_mm_add_sd(low, _mm_unpackhi_pd(low, low)));
    return first + _mm_cvtsd_f64(_mm_add_sd(high, _mm_unpackhi_pd(high, high)));
}

}  // namespace

}  // namespace dftrace::tensor
