// Two passes over a block that is still in the cache: the mean first, then the squares around it.
#include "tensor/block_sums.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

// Several sums at once: one alone would wait for itself at each addition.
constexpr std::size_t lanes = 4;

constexpr double infinity = std::numeric_limits<double>::infinity();

// Beyond this sum of magnitudes, squares of fp64 numbers may not fit. They are made smaller first.
constexpr double squares_fit = 0x1p480;
constexpr double smaller = 0x1p-600;

struct Lane {
    double sum = 0, absolute = 0;
    double min = infinity, max = -infinity, amin = infinity;
    std::size_t finite = 0, nan = 0, zero = 0, over = 0, under = 0;

    void take(double value, const Fp8Thresholds& thresholds) {
        const double magnitude = std::fabs(value);
        // The comparisons are false for NaN.
        const bool is_finite = magnitude < infinity, is_zero = magnitude == 0;
        sum += is_finite ? value : 0.0;
        absolute += is_finite ? magnitude : 0.0;
        finite += is_finite;
        nan += magnitude != magnitude;
        zero += is_zero;
        min = value < min ? value : min;
        max = value > max ? value : max;
        amin = magnitude < amin && !is_zero ? magnitude : amin;
        const float narrow = static_cast<float>(magnitude);
        over += narrow > thresholds.over;
        under += narrow <= thresholds.under && !is_zero;
    }
};

template <class Format, class Visit>
void visit(const void* data, std::size_t count, const Visit& visitor) {
    const auto* x = static_cast<const typename Format::Stored*>(data);
    std::size_t i = 0;
    for (; i + lanes <= count; i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) visitor(Format::widen(x[i + lane]), lane);
    for (; i < count; ++i) visitor(Format::widen(x[i]), 0);
}

template <class Format>
double sum_of_smaller(const void* data, std::size_t count) {
    double sum = 0;
    visit<Format>(data, count, [&](double value, std::size_t) {
        sum += std::fabs(value) < infinity ? value * smaller : 0.0;
    });
    return sum;
}

template <class Format>
Record sums(const void* data, std::size_t count, const CollectOrder& order) {
    Lane lane[lanes];
    visit<Format>(data, count, [&](double value, std::size_t i) { lane[i].take(value, order.thresholds); });
    Record record = neutral_record();
    double sum = 0;
    for (const Lane& one : lane) {
        sum += one.sum;
        record.absolute_sum += one.absolute;
        record.min = std::min(record.min, one.min);
        record.max = std::max(record.max, one.max);
        record.amin_nonzero = std::min(record.amin_nonzero, one.amin);
        record.n_finite += static_cast<double>(one.finite);
        record.n_nan += static_cast<double>(one.nan);
        record.n_zero += static_cast<double>(one.zero);
        record.n_over += static_cast<double>(one.over);
        record.n_under += static_cast<double>(one.under);
    }
    record.n_total = static_cast<double>(count);
    record.n_inf = record.n_total - record.n_finite - record.n_nan;
    if (record.n_nan < record.n_total) record.amax = std::max(std::fabs(record.min), std::fabs(record.max));
    if (record.n_finite > 0) {
        const bool large = record.absolute_sum > squares_fit;
        const double factor = large ? smaller : 1.0;
        if (large) sum = sum_of_smaller<Format>(data, count);
        const double mean = sum / record.n_finite;
        double squares[lanes] = {}, rest[lanes] = {};
        visit<Format>(data, count, [&](double value, std::size_t i) {
            const double distance = std::fabs(value) < infinity ? value * factor - mean : 0.0;
            squares[i] += distance * distance;
            rest[i] += distance;
        });
        double total = 0, left = 0;
        for (std::size_t i = 0; i < lanes; ++i) {
            total += squares[i];
            left += rest[i];
        }
        record.mean = (mean + left / record.n_finite) / factor;
        record.m2 = std::max(0.0, total - left * left / record.n_finite) / factor / factor;
    }
    if (order.depth != Depth::fp8) record.n_over = record.n_under = 0;
    if (order.depth == Depth::six)
        record.n_zero = record.amin_nonzero = std::numeric_limits<double>::quiet_NaN();
    return record;
}

}  // namespace

Record careful_sums(const void* data, std::size_t count, const CollectOrder& order) {
    switch (order.element) {
        case Element::fp32: return sums<Fp32>(data, count, order);
        case Element::bf16: return sums<Bf16>(data, count, order);
        case Element::fp16: return sums<Fp16>(data, count, order);
        case Element::fp64: break;
    }
    return sums<Fp64>(data, count, order);
}

}  // namespace dftrace::tensor
