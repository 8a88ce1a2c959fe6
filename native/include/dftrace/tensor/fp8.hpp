// The two 8-bit floating-point formats, and which elements their scaled grids clip or lose.
#pragma once

namespace dftrace::tensor {

enum class Fp8Format { e4m3, e5m2 };

// E4M3 has no infinities: its largest number is 448, not 240 (Micikevicius et al., FP8 Formats for
// Deep Learning, 2022, table 1).
struct Fp8Grid {
    int mantissa_bits;
    int smallest_exponent;  // of a normal number
    float largest;
};

constexpr Fp8Grid grid_of(Fp8Format format) {
    return format == Fp8Format::e4m3 ? Fp8Grid{3, -6, 448.0f} : Fp8Grid{2, -14, 57344.0f};
}

// For magnitudes of elements as fp32.
struct Fp8Thresholds {
    float under;  // what is not zero and not above it becomes zero
    float over;   // what is above it is clipped
};

// `scale` is what elements are multiplied by; positive and finite.
Fp8Thresholds fp8_thresholds(float scale, Fp8Format format) noexcept;

// What scaled numbers are multiplied by to come back: 1 / scale, and never infinite.
float reciprocal_of(float scale) noexcept;

}  // namespace dftrace::tensor
