// Numbers as bit patterns, and 16-bit formats as fp32. Each file that includes this has its own copy
// of the code, built with its own instructions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dftrace::tensor {

namespace {

[[maybe_unused]] inline std::uint32_t bits_of(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

[[maybe_unused]] inline float float_of(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

constexpr std::uint32_t magnitude_mask = 0x7FFF'FFFF;
constexpr std::uint32_t infinity_bits = 0x7F80'0000;

struct Fp32 {
    using Stored = float;
    static constexpr std::uint32_t infinity = infinity_bits;
    static float widen(float value) { return value; }
    static float narrow(float value) { return value; }
};

struct Fp64 {
    using Stored = double;
    static double widen(double value) { return value; }
};

struct Bf16 {
    using Stored = std::uint16_t;
    static constexpr std::uint32_t infinity = 0x7F80;
    static float widen(std::uint16_t bits) { return float_of(std::uint32_t{bits} << 16); }
    static std::uint16_t narrow(float value) {
        const std::uint32_t bits = bits_of(value);
        if ((bits & magnitude_mask) > infinity_bits) return 0x7FC0;
        return static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
    }
};

struct Fp16 {
    using Stored = std::uint16_t;
    static constexpr std::uint32_t infinity = 0x7C00;
    static float widen(std::uint16_t bits) {
        const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16, magnitude = bits & 0x7FFFu;
        if (magnitude >= infinity) return float_of(sign | infinity_bits | (magnitude & 0x3FF) << 13);
        if (magnitude >= 0x400) return float_of(sign | ((magnitude << 13) + (112u << 23)));
        const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
        return float_of(sign | bits_of(subnormal));
    }
    static std::uint16_t narrow(float value) {
        const std::uint32_t bits = bits_of(value), magnitude = bits & magnitude_mask;
        const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
        if (magnitude > infinity_bits) return static_cast<std::uint16_t>(sign | 0x7E00);
        if (magnitude >= 0x477F'F000) return static_cast<std::uint16_t>(sign | infinity);  // 65520
        if (magnitude < 0x3880'0000) {  // below 2^-14: the sum is rounded to multiples of 2^-24
            const float sum = float_of(magnitude) + 0.5f;
            return static_cast<std::uint16_t>(sign | (bits_of(sum) - bits_of(0.5f)));
        }
        const std::uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
        return static_cast<std::uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
    }
};

}  // namespace

}  // namespace dftrace::tensor
