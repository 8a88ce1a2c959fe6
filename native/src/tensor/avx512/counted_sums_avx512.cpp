// Sums of a block of 16-bit elements and counts of them, with AVX-512; the sums are to the bit those of AVX2.
// Built for processors that have it: nothing here may have external linkage but what the table names.
#include "tensor/block_kernels.hpp"

#include <immintrin.h>

#include "tensor/avx2/avx2_lanes.hpp"
#include "tensor/avx2/counted_loop.hpp"
#include "tensor/avx2/quick_lanes.hpp"

namespace dftrace::tensor {

namespace {

INLINE __m512i load(const void* x) { return _mm512_loadu_si512(x); }
INLINE __m256i load_half(const void* x) { return _mm256_loadu_si256(static_cast<const __m256i*>(x)); }
INLINE __m512i all_16(unsigned value) {
    return _mm512_set1_epi16(static_cast<short>(static_cast<std::uint16_t>(value)));
}

// The two lanes of AVX2 in the halves of one register.
template <bool shifted>
class WideMoments {
  public:
    explicit WideMoments(float shift) : shift_(_mm512_set1_ps(shift)) {}

    INLINE void add(__m512 x) {
        const __m512 distance = shifted ? _mm512_sub_ps(x, shift_) : x;
        sum_ = _mm512_add_ps(sum_, distance);
        square_ = _mm512_fmadd_ps(distance, distance, square_);
        absolute_ = _mm512_add_ps(absolute_, _mm512_abs_ps(x));
    }

    INLINE void fold() {
        total_sum_ = add_widened(total_sum_, both_halves(sum_));
        total_square_ = add_widened(total_square_, both_halves(square_));
        total_absolute_ = add_widened(total_absolute_, both_halves(absolute_));
        sum_ = square_ = absolute_ = _mm512_setzero_ps();
    }

    double sum() const { return sum_of(total_sum_); }
    double square() const { return sum_of(total_square_); }
    double absolute() const { return sum_of(total_absolute_); }

  private:
    static INLINE __m256 both_halves(__m512 lanes) {
        return _mm256_add_ps(_mm512_castps512_ps256(lanes), _mm512_extractf32x8_ps(lanes, 1));
    }

    __m512 shift_;
    __m512 sum_ = _mm512_setzero_ps(), square_ = sum_, absolute_ = sum_;
    __m256d total_sum_ = _mm256_setzero_pd(), total_square_ = total_sum_, total_absolute_ = total_sum_;
};

template <class Half>
class WideHalfLanes : public HalfLanes<Half, 0> {
  public:
    explicit WideHalfLanes(const MagnitudeLimits& limits) : HalfLanes<Half, 0>(limits) {}

    template <bool shifted>
    INLINE void take(const std::uint16_t* x, WideMoments<shifted>& moments) {
        const __m512i stored = _mm512_castsi256_si512(load_half(x));
        moments.add(widened<0>(stored));
        // Each twice, which makes no difference.
        order(_mm512_inserti64x4(stored, _mm512_castsi512_si256(stored), 1));
    }

    template <bool shifted>
    INLINE void take32(const std::uint16_t* x, WideMoments<shifted>& moments) {
        const __m512i stored = load(x);
        moments.add(widened<0>(stored));
        moments.add(widened<1>(stored));
        order(stored);
    }

    Found found() const {
        const auto least = _mm256_min_epi16(_mm512_castsi512_si256(min_), _mm512_extracti64x4_epi64(min_, 1));
        const auto most = _mm256_max_epi16(_mm512_castsi512_si256(max_), _mm512_extracti64x4_epi64(max_, 1));
        return {HalfLanes<Half, 0>::value_of(least_of_i16(least)),
                HalfLanes<Half, 0>::value_of(greatest_of_i16(most)),
                HalfLanes<Half, 0>::none,
                0,
                0,
                0};
    }

  private:
    // Sixteen numbers in the order of AVX2's lanes.
    template <int half>
    INLINE __m512 widened(__m512i stored) const {
        if constexpr (Half::infinity == Bf16::infinity)
            return _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAA'AAAA, places_[half], stored));
        else
            return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(stored, half));
    }

    // Sign and magnitude as a two's complement number keep their order.
    INLINE void order(__m512i stored) {
        const __m512i ordered =
            _mm512_xor_si512(stored, _mm512_and_si512(_mm512_srai_epi16(stored, 15), all_16(0x7FFF)));
        min_ = _mm512_min_epi16(min_, ordered);
        max_ = _mm512_max_epi16(max_, ordered);
    }

    // Those at even places, then those at odd ones; each is the upper half of an fp32 number.
    static INLINE __m512i places(int from) {
        const __m512i evens = _mm512_set_epi32(15, 13, 11, 9, 7, 5, 3, 1, 14, 12, 10, 8, 6, 4, 2, 0);
        return _mm512_slli_epi32(_mm512_add_epi32(evens, _mm512_set1_epi32(from)), 16);
    }

    __m512i places_[2] = {places(0), places(16)};
    __m512i min_ = all_16(Half::infinity), max_ = all_16(0x8000 | (0x7FFF ^ Half::infinity));
};

// Seldom: so far from the others these few are counted one by one.
template <class Format>
APART void count_outside(__m512i upper, std::uint32_t left, PairTables& tables) {
    alignas(64) std::uint16_t lanes[32];
    _mm512_store_si512(lanes, upper);
    for (; left; left &= left - 1) {
        const std::uint32_t bin = bin_of_upper<Format>(lanes[__builtin_ctz(left)]);
        ++tables.bins[bin];
        ++tables.outside_of_sign[bin >> 11];
    }
}

template <class Format>
class WideCoder {
  public:
    explicit WideCoder(std::uint32_t window) : first_(all_16((window - Of::first_bin) << Of::bin_at)) {}

    // The codes of 64 elements, as pairs.
    INLINE void code(const std::uint16_t* x, std::uint16_t* coded, PairTables& tables) const {
        const __m512i last_place = all_16(PairTables::outside << Of::bin_at);
        __m512i upper[2], codes[2];
        std::uint32_t outside[2];
        for (int half = 0; half < 2; ++half) {
            upper[half] = load(x + 32 * half);
            const __m512i magnitude = _mm512_and_si512(upper[half], all_16(0x7FFF));
            // Below the window, the difference is larger than any place in it.
            const __m512i place = _mm512_min_epu16(_mm512_sub_epi16(magnitude, first_), last_place);
            outside[half] = _mm512_mask_cmpeq_epi16_mask(
                _mm512_cmpgt_epu16_mask(magnitude, all_16(Of::zero_bin)), place, last_place);
            codes[half] = _mm512_or_si512(_mm512_srli_epi16(place, Of::bin_at),
                                          _mm512_and_si512(_mm512_srli_epi16(upper[half], 8), all_16(0x80)));
        }
        _mm512_store_si512(coded, _mm512_or_si512(codes[0], _mm512_slli_epi16(codes[1], 8)));
        if (__builtin_expect((outside[0] | outside[1]) != 0, 0))
            for (int half = 0; half < 2; ++half) count_outside<Format>(upper[half], outside[half], tables);
    }

  private:
    using Of = Upper<Format>;
    __m512i first_;
};

template <class Lanes_>
struct WideMachine {
    using Lanes = Lanes_;
    using Format = typename Lanes::Format;
    template <bool shifted>
    using Moments = WideMoments<shifted>;
    using Coder = WideCoder<Format>;
    static constexpr std::size_t step = 64;

    template <class Moments>
    static INLINE void take32(Lanes& lanes, const std::uint16_t* x, Moments& moments) {
        lanes.take32(x, moments);
    }
};

}  // namespace

bool counted_sums_bf16_avx512(const void* data, std::size_t count, float shift, PairTables& tables,
                              Record& record) {
    return counted_sums<WideMachine<WideHalfLanes<Bf16>>>(data, count, shift, tables, record);
}
bool counted_sums_fp16_avx512(const void* data, std::size_t count, float shift, PairTables& tables,
                              Record& record) {
    return counted_sums<WideMachine<WideHalfLanes<Fp16>>>(data, count, shift, tables, record);
}

}  // namespace dftrace::tensor
