// Lanes in which AVX2 sums a block, and the record that is made of them. Only for files that are built for
// it; all of it is internal to the file that includes it.
#pragma once

#include <immintrin.h>

#include "tensor/avx2/avx2_lanes.hpp"
#include "tensor/block_kernels.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

// Squares of larger or smaller numbers do not fit fp32 well.
constexpr double quick_limit = 1e15;

INLINE __m256 without_sign(__m256 x) {
    return _mm256_castsi256_ps(_mm256_and_si256(_mm256_castps_si256(x), all32(magnitude_mask)));
}

// Sums of x - shift, of its square, and of |x|. A shift of zero is not taken off.
template <bool shifted>
class Moments {
  public:
    explicit Moments(float shift) : shift_(_mm256_set1_ps(shift)) {}

    INLINE void add(int lane, __m256 x) {
        const __m256 distance = shifted ? _mm256_sub_ps(x, shift_) : x;
        sum_[lane] = _mm256_add_ps(sum_[lane], distance);
        square_[lane] = _mm256_fmadd_ps(distance, distance, square_[lane]);
        absolute_[lane] = _mm256_add_ps(absolute_[lane], without_sign(x));
    }

    INLINE void fold() {
        total_sum_ = add_widened(total_sum_, _mm256_add_ps(sum_[0], sum_[1]));
        total_square_ = add_widened(total_square_, _mm256_add_ps(square_[0], square_[1]));
        total_absolute_ = add_widened(total_absolute_, _mm256_add_ps(absolute_[0], absolute_[1]));
        for (int lane = 0; lane < 2; ++lane)
            sum_[lane] = square_[lane] = absolute_[lane] = _mm256_setzero_ps();
    }

    double sum() const { return sum_of(total_sum_); }
    double square() const { return sum_of(total_square_); }
    double absolute() const { return sum_of(total_absolute_); }

  private:
    __m256 shift_;
    __m256 sum_[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    __m256 square_[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    __m256 absolute_[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    __m256d total_sum_ = _mm256_setzero_pd(), total_square_ = total_sum_, total_absolute_ = total_sum_;
};

// What is found beside the sums, of the tail element by element.
struct Found {
    float min, max;
    std::uint32_t smallest_less_one;  // of the magnitudes, as bits: zero is the largest
    std::uint64_t zero, over, under;
};

template <int depth>
INLINE void take_one(Found& found, float x, std::uint32_t magnitude, const MagnitudeLimits& limits) {
    found.min = x < found.min ? x : found.min;
    found.max = x > found.max ? x : found.max;
    if constexpr (depth >= 1) {
        if (magnitude - 1 < found.smallest_less_one) found.smallest_less_one = magnitude - 1;
        found.zero += magnitude == 0;
    }
    if constexpr (depth >= 2) {
        found.over += magnitude > limits.over;
        found.under += magnitude < limits.under_end;
    }
}

// Sixteen fp32 numbers a step.
template <int depth>
class Fp32Lanes {
  public:
    using Format = Fp32;
    static constexpr std::size_t step = 16;
    // The sums are added to the double ones after so many steps, which keeps their rounding small.
    static constexpr std::size_t steps_a_fold = 32;

    explicit Fp32Lanes(const MagnitudeLimits& limits)
        : over_(_mm256_set1_epi32(static_cast<int>(limits.over))),
          under_end_(_mm256_set1_epi32(static_cast<int>(limits.under_end))) {}

    template <bool shifted>
    INLINE void take(const float* x, Moments<shifted>& moments) {
        const __m256 a = _mm256_loadu_ps(x), b = _mm256_loadu_ps(x + 8);
        const __m256i magnitude_a = _mm256_and_si256(_mm256_castps_si256(a), all32(magnitude_mask));
        const __m256i magnitude_b = _mm256_and_si256(_mm256_castps_si256(b), all32(magnitude_mask));
        moments.add(0, a);
        moments.add(1, b);
        // One register each: more do not fit, and what lies in memory between two steps is waited for.
        min_ = _mm256_min_ps(_mm256_min_ps(a, b), min_);
        max_ = _mm256_max_ps(_mm256_max_ps(a, b), max_);
        if constexpr (depth >= 1) {
            const __m256i less_a = _mm256_add_epi32(magnitude_a, all32(~0u));
            const __m256i less_b = _mm256_add_epi32(magnitude_b, all32(~0u));
            smallest_ = _mm256_min_epu32(_mm256_min_epu32(less_a, less_b), smallest_);
            const __m256i nought = _mm256_setzero_si256();
            zero_ = count(zero_, _mm256_cmpeq_epi32(magnitude_a, nought),
                          _mm256_cmpeq_epi32(magnitude_b, nought));
        }
        if constexpr (depth >= 2) {
            above_ =
                count(above_, _mm256_cmpgt_epi32(magnitude_a, over_), _mm256_cmpgt_epi32(magnitude_b, over_));
            below_ = count(below_, _mm256_cmpgt_epi32(under_end_, magnitude_a),
                           _mm256_cmpgt_epi32(under_end_, magnitude_b));
        }
    }

    Found found() const {
        Found found{least_of(min_), greatest_of(max_), none, 0, 0, 0};
        if constexpr (depth >= 1) {
            found.smallest_less_one = least_of_u32(smallest_);
            found.zero = sum_of_u32(zero_);
        }
        if constexpr (depth >= 2) {
            found.over = sum_of_u32(above_);
            found.under = sum_of_u32(below_);
        }
        return found;
    }

    static std::uint32_t magnitude_of(float x) { return bits_of(x) & magnitude_mask; }
    static float from_magnitude(std::uint32_t bits) { return float_of(bits); }
    static constexpr std::uint32_t none = ~0u;

  private:
    // What is true is -1.
    static INLINE __m256i count(__m256i so_far, __m256i a, __m256i b) {
        return _mm256_sub_epi32(so_far, _mm256_add_epi32(a, b));
    }

    __m256i over_, under_end_;
    __m256 min_ = _mm256_set1_ps(__builtin_inff()), max_ = _mm256_set1_ps(-__builtin_inff());
    __m256i smallest_ = all32(~0u);
    __m256i zero_ = _mm256_setzero_si256(), above_ = zero_, below_ = zero_;
};

// Sixteen 16-bit numbers a step; what does not need their values is done with integers.
template <class Half, int depth>
class HalfLanes {
  public:
    using Format = Half;
    static constexpr std::size_t step = 16;
    // Many numbers are the same here, and so is what is lost with each.
    static constexpr std::size_t steps_a_fold = 16;

    explicit HalfLanes(const MagnitudeLimits& limits)
        : over_(_mm256_set1_epi16(static_cast<short>(limits.over))),
          under_end_(_mm256_set1_epi16(static_cast<short>(limits.under_end))) {}

    template <bool shifted>
    INLINE void take(const std::uint16_t* x, Moments<shifted>& moments) {
        const __m256i stored = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
        const __m256i magnitude = _mm256_and_si256(stored, all16(0x7FFF));
        const Widened values = widen16(stored, Half{});
        moments.add(0, values.first);
        moments.add(1, values.second);
        // Sign and magnitude as a two's complement number keep their order.
        const __m256i ordered =
            _mm256_xor_si256(stored, _mm256_and_si256(_mm256_srai_epi16(stored, 15), all16(0x7FFF)));
        min_ = _mm256_min_epi16(min_, ordered);
        max_ = _mm256_max_epi16(max_, ordered);
        if constexpr (depth >= 1) {
            smallest_ = _mm256_min_epu16(smallest_, _mm256_add_epi16(magnitude, all16(0xFFFF)));
            zero_ = _mm256_sub_epi16(zero_, _mm256_cmpeq_epi16(magnitude, _mm256_setzero_si256()));
        }
        if constexpr (depth >= 2) {
            above_ = _mm256_sub_epi16(above_, _mm256_cmpgt_epi16(magnitude, over_));
            below_ = _mm256_sub_epi16(below_, _mm256_cmpgt_epi16(under_end_, magnitude));
        }
    }

    Found found() const {
        Found found{value_of(least_of_i16(min_)), value_of(greatest_of_i16(max_)), none, 0, 0, 0};
        if constexpr (depth >= 1) {
            found.smallest_less_one = least_of_u16(smallest_);
            found.zero = sum_of_u16(zero_);
        }
        if constexpr (depth >= 2) {
            found.over = sum_of_u16(above_);
            found.under = sum_of_u16(below_);
        }
        return found;
    }

    static std::uint32_t magnitude_of(std::uint16_t x) { return x & 0x7FFFu; }
    static float from_magnitude(std::uint32_t bits) { return Half::widen(static_cast<std::uint16_t>(bits)); }
    static float value_of(std::int16_t ordered) {
        return Half::widen(static_cast<std::uint16_t>(ordered ^ ((ordered >> 15) & 0x7FFF)));
    }
    static constexpr std::uint32_t none = 0xFFFF;

  private:
    __m256i over_, under_end_;
    __m256i min_ = all16(Half::infinity), max_ = all16(0x8000 | (0x7FFF ^ Half::infinity));
    __m256i smallest_ = all16(0xFFFF);
    __m256i zero_ = _mm256_setzero_si256(), above_ = zero_, below_ = zero_;
};

// What a block's lanes come to.
struct Totals {
    template <class Lanes, class Moments>
    Totals(const Moments& moments, const Lanes& lanes)
        : sum(moments.sum()), square(moments.square()), absolute(moments.absolute()), found(lanes.found()) {}

    double sum, square, absolute;
    Found found;
};

// The record of a block, of which so many elements are in the totals. False where it cannot be trusted.
template <class Lanes, int depth>
bool record_of_totals(Totals totals, const typename Lanes::Format::Stored* x, std::size_t taken,
                      std::size_t count, float shift, const MagnitudeLimits& limits, Record& record) {
    auto& [sum, square, absolute, found] = totals;
    for (std::size_t i = taken; i < count; ++i) {
        const float value = Lanes::Format::widen(x[i]);
        take_one<depth>(found, value, Lanes::magnitude_of(x[i]), limits);
        const double distance = static_cast<double>(value) - static_cast<double>(shift);
        sum += distance;
        square += distance * distance;
        absolute += __builtin_fabs(static_cast<double>(value));
    }
    const double amax = __builtin_fmax(__builtin_fabs(static_cast<double>(found.min)),
                                       __builtin_fabs(static_cast<double>(found.max)));
    // NaN and infinities show in the sum of the magnitudes.
    if (!(absolute < __builtin_inf()) || amax > quick_limit || (amax > 0 && amax < 1 / quick_limit))
        return false;
    const double n = static_cast<double>(count), unknown = __builtin_nan("");
    const double offset = sum / n, m2 = square - sum * offset;
    record.n_finite = record.n_total = n;
    record.mean = static_cast<double>(shift) + offset;
    record.m2 = m2 > 0 ? m2 : 0;
    record.absolute_sum = absolute;
    record.min = static_cast<double>(found.min);
    record.max = static_cast<double>(found.max);
    record.amax = amax;
    record.n_nan = record.n_inf = record.square_error = 0;
    record.scale_min = record.scale_max = unknown;
    record.n_zero = depth >= 1 ? static_cast<double>(found.zero) : unknown;
    record.amin_nonzero = depth < 1 ? unknown
                          : found.smallest_less_one == Lanes::none
                              ? __builtin_inf()
                              : static_cast<double>(Lanes::from_magnitude(found.smallest_less_one + 1));
    record.n_over = static_cast<double>(found.over);
    record.n_under = depth >= 2 ? static_cast<double>(found.under - found.zero) : 0;
    return true;
}

}  // namespace

}  // namespace dftrace::tensor
