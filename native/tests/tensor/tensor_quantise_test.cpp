// Numbers to the 8-bit formats and back, and the thresholds that foretell what is lost.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "dftrace/tensor/fake_quantise.hpp"
#include "dftrace/tensor/kernels.hpp"

using namespace dftrace::tensor;

namespace {

// By search through the whole grid, in double precision.
double nearest_on_grid(double value, Fp8Format format) {
    const Fp8Grid grid = grid_of(format);
    const double size = std::fabs(value), steps = std::ldexp(1.0, grid.mantissa_bits);
    double best = 0, best_distance = size;
    bool best_even = true;
    for (int exponent = grid.smallest_exponent; exponent < 17; ++exponent)
        for (int fraction = 0; fraction < static_cast<int>(steps); ++fraction)
            for (int leading = exponent == grid.smallest_exponent ? 0 : 1; leading < 2; ++leading) {
                const double number = std::ldexp(leading + fraction / steps, exponent);
                const double distance = std::fabs(number - size);
                const bool even = fraction % 2 == 0;
                if (number > static_cast<double>(grid.largest)) continue;
                if (distance < best_distance || (distance == best_distance && even && !best_even)) {
                    best = number;
                    best_distance = distance;
                    best_even = even;
                }
            }
    return std::copysign(best, value);
}

std::vector<float> quantised(const std::vector<float>& numbers, const QuantiseOrder& order,
                             Record* record = nullptr) {
    std::vector<float> output(numbers.size());
    const Record found = fake_quantise(numbers.data(), output.data(), numbers.size(), order);
    if (record) *record = found;
    return output;
}

bool same(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

}  // namespace

TEST("numbers land on the nearest of the grid, ties on the even one") {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> exponent(-20.0f, 18.0f);
    std::vector<float> numbers;
    for (int i = 0; i < 3000; ++i) numbers.push_back(std::exp2(exponent(random)) * (i % 2 ? 1.0f : -1.0f));
    for (int i = -40; i < 40; ++i) numbers.push_back(static_cast<float>(i) * 0x1p-11f);  // ties among them
    for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2})
        for (const Instructions wanted : {Instructions::portable, best_instructions()}) {
            use_instructions(wanted);
            QuantiseOrder order;
            order.format = format;
            const std::vector<float> output = quantised(numbers, order);
            for (std::size_t i = 0; i < numbers.size(); ++i)
                if (!same(output[i],
                          static_cast<float>(nearest_on_grid(static_cast<double>(numbers[i]), format))))
                    CHECK_EQ(output[i], nearest_on_grid(static_cast<double>(numbers[i]), format));
        }
}

TEST("both sets of instructions give the same bits and counts for any pattern") {
    std::mt19937 random(5);
    std::vector<float> numbers(70'003);
    for (float& number : numbers) {
        const std::uint32_t bits = random();
        std::memcpy(&number, &bits, sizeof bits);
    }
    for (const float scale : {1.0f, 3e20f, 1e-20f}) {
        QuantiseOrder order;
        order.scale = scale;
        order.counted = true;
        Record first, second;
        use_instructions(Instructions::portable);
        const std::vector<float> portable = quantised(numbers, order, &first);
        use_instructions(best_instructions());
        const std::vector<float> best = quantised(numbers, order, &second);
        for (std::size_t i = 0; i < numbers.size(); ++i)
            if (!same(portable[i], best[i])) CHECK_EQ(portable[i], best[i]);
        CHECK_EQ(first.n_over, second.n_over);
        CHECK_EQ(first.n_under, second.n_under);
        std::uint64_t lost = 0;
        for (std::size_t i = 0; i < numbers.size(); ++i) lost += numbers[i] != 0 && best[i] == 0;
        // Where the way back does not underflow, zero is what the format made of it.
        if (scale <= 1.0f) CHECK_EQ(static_cast<std::uint64_t>(second.n_under), lost);
    }
}

TEST("NaN stays, infinities are clipped, zeros keep their sign") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> output =
        quantised({std::nanf(""), infinity, -infinity, 0.0f, -0.0f, -1e-30f}, QuantiseOrder{});
    CHECK(std::isnan(output[0]));
    CHECK(same(output[1], 448.0f));
    CHECK(same(output[2], -448.0f));
    CHECK(same(output[3], 0.0f));
    CHECK(same(output[4], -0.0f));
    CHECK(same(output[5], -0.0f));
}

TEST("the threshold is the last number that becomes zero") {
    std::mt19937 random(9);
    std::uniform_real_distribution<float> exponent(-120.0f, 120.0f);
    for (int i = 0; i < 2000; ++i) {
        const float scale = std::exp2(exponent(random));
        for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::e5m2}) {
            const Fp8Grid grid = grid_of(format);
            const float half = std::ldexp(1.0f, grid.smallest_exponent - grid.mantissa_bits - 1);
            const Fp8Thresholds found = fp8_thresholds(scale, format);
            CHECK(found.under * scale <= half);
            CHECK(std::nextafter(found.under, 1e38f) * scale > half);
        }
    }
}
