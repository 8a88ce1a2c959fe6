// Thresholds of the 8-bit formats.
#include "dftrace/tensor/fp8.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tensor/default_arithmetic.hpp"

namespace dftrace::tensor {

namespace {

constexpr float fp32_max = std::numeric_limits<float>::max();

// The largest fp32 number whose product with the scale, rounded to fp32, is not above `bound`.
float largest_below(float bound, float scale) {
    float edge = std::min(bound / scale, fp32_max);
    while (edge * scale > bound) edge = std::nextafter(edge, 0.0f);
    while (edge < fp32_max) {
        const float next = std::nextafter(edge, fp32_max);
        if (next * scale > bound) break;
        edge = next;
    }
    return edge;
}

}  // namespace

Fp8Thresholds fp8_thresholds(float scale, Fp8Format format) noexcept {
    const DefaultArithmetic arithmetic;
    const Fp8Grid grid = grid_of(format);
    // Half of the smallest number: a tie goes to the even neighbour, which is zero.
    const float half_smallest = std::ldexp(1.0f, grid.smallest_exponent - grid.mantissa_bits - 1);
    // Under current scaling the maximum times the scale may come out a rounding above the largest.
    const float slack = 1.0f + 0x1p-22f;
    return {largest_below(half_smallest, scale), std::min(grid.largest / scale * slack, fp32_max)};
}

float reciprocal_of(float scale) noexcept {
    const DefaultArithmetic arithmetic;
    return std::min(1.0f / scale, fp32_max);
}

}  // namespace dftrace::tensor
