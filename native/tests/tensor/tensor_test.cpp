// Tensors by all instructions and on any number of threads, which sanitizers look at: the ends of them,
// counts by bin as a loop over the elements has them, 8-bit formats. That the statistics and grids are right
// is for tests/inspect/numerics.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "dftrace/tensor/collect.hpp"
#include "dftrace/tensor/fake_quantise.hpp"
#include "dftrace/tensor/histogram.hpp"
#include "dftrace/tensor/kernels.hpp"

using namespace dftrace::tensor;

namespace {

std::vector<float> normal_numbers(std::size_t count, float mean) {
    std::mt19937 random(7);
    std::normal_distribution<float> distribution(mean, 1.0f);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = distribution(random);
    return numbers;
}

template <class Check>
void with_each_instructions(const Check& check) {
    for (const Instructions wanted : {Instructions::portable, Instructions::avx2, Instructions::avx512}) {
        if (wanted > best_instructions()) continue;
        CHECK_EQ(use_instructions(wanted), wanted);
        check();
    }
    use_instructions(best_instructions());
}

std::uint32_t bin_of(float number) {
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits >> histogram_shift;
}

// The uppermost bits of the fp32 number, those of what is no number as they are.
std::uint32_t bin_of_fp16(std::uint16_t bits) {
    const std::uint32_t sign = bits >> 15, exponent = bits >> 10 & 0x1F, mantissa = bits & 0x3FF;
    if (exponent == 0x1F) return sign << 11 | 0x7F8 | mantissa >> 7;
    const float magnitude =
        exponent ? std::ldexp(static_cast<float>(1024 + mantissa), static_cast<int>(exponent) - 25)
                 : std::ldexp(static_cast<float>(mantissa), -24);
    return sign << 11 | bin_of(magnitude);
}

// Without what is cut off; what is too small is zero, what is too large infinite.
std::uint16_t cut_to_fp16(std::uint32_t bits) {
    const std::uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7FFF'FFFF;
    if (magnitude < 113u << 23) return static_cast<std::uint16_t>(sign);
    if (magnitude >= 143u << 23) return static_cast<std::uint16_t>(sign | 0x7C00);
    return static_cast<std::uint16_t>(sign | (magnitude - (112u << 23)) >> 13);
}

void check_histogram(const void* data, std::size_t count, Element element, const BinCounts& wanted) {
    with_each_instructions([&] {
        BinCounts bins{};
        const Record found = histogram(data, count, element, 1, bins);
        const Record record = collect(data, count, {element, Depth::six, {}, 1});
        CHECK(bins == wanted);
        CHECK(std::memcmp(&found, &record, sizeof record) == 0);
    });
}

std::vector<float> numbers_of_all_sizes(std::size_t count) {
    std::mt19937 random(11);
    std::normal_distribution<float> sizes(0.0f, 20.0f);
    std::vector<float> numbers(count);
    for (float& number : numbers)
        number = std::copysign(std::exp2(sizes(random)), random() % 2 ? 1.0f : -1.0f);
    return numbers;
}

std::vector<float> quantised(const std::vector<float>& numbers, const QuantiseOrder& order, Record& record) {
    std::vector<float> output(numbers.size());
    record = fake_quantise(numbers.data(), output.data(), numbers.size(), order);
    return output;
}

bool same(float a, float b) {
    return (std::isnan(a) && std::isnan(b)) || (a == b && std::signbit(a) == std::signbit(b));
}

}  // namespace

TEST("every length ends where the tensor ends") {
    const std::vector<float> numbers = normal_numbers(200, 0.0f);
    with_each_instructions([&] {
        for (std::size_t length = 1; length <= 150; ++length) {
            // What lies behind would show in every field.
            std::vector<float> part(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(length));
            double sum = 0;
            for (const float number : part) sum += static_cast<double>(number);
            part.push_back(1e9f);
            const Record record = collect(part.data(), length, {});
            CHECK_EQ(record.n_total, static_cast<double>(length));
            CHECK(record.max < 100.0);
            CHECK(std::fabs(record.mean * static_cast<double>(length) - sum) < 1e-4);
        }
    });
}

TEST("merging in the order of the blocks gives the same bits on any number of threads") {
    const std::vector<float> numbers = normal_numbers(900'001, 3.0f);
    const auto record_of = [&](const CollectOrder& order) {
        return collect(numbers.data(), numbers.size(), order);
    };
    const Record alone = record_of({});
    for (unsigned threads = 2; threads < 6; ++threads) {
        CollectOrder order;
        order.threads = threads;
        const Record shared = record_of(order);
        CHECK_EQ(shared.mean, alone.mean);
        CHECK_EQ(shared.m2, alone.m2);
        CHECK_EQ(shared.absolute_sum, alone.absolute_sum);
    }
}

TEST("every element is in its bin") {
    auto numbers = numbers_of_all_sizes(5'000'003);
    numbers[17] = std::numeric_limits<float>::infinity();
    numbers[18] = std::numeric_limits<float>::quiet_NaN();
    numbers[19] = -0.0f;
    BinCounts wanted{};
    for (const float number : numbers) ++wanted[bin_of(number)];
    const Record record = collect(numbers.data(), numbers.size(), {Element::fp32, Depth::six, {}, 1});
    for (const unsigned threads : {1u, 2u, 3u, 64u}) {
        BinCounts bins{};
        const Record found = histogram(numbers.data(), numbers.size(), Element::fp32, threads, bins);
        CHECK(bins == wanted);
        CHECK_EQ(found.n_nan, 1.0);
        CHECK_EQ(found.n_inf, 1.0);
        CHECK_EQ(found.n_finite, record.n_finite);
        CHECK_EQ(found.min, record.min);
    }
}

TEST("every element is in its bin, whatever most of them are like") {
    // Alike, mostly zeros, with a few far from all others, moving from block to block, growing over all of
    // them, alike from some place on, and close to each other; what is counted of many at a time must not
    // overflow, and the statistics are those that are had without the counts.
    constexpr std::size_t count = 700'037;
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const std::function<float(std::size_t)> kinds[] = {
        [&](std::size_t) { return normal(random); },
        [&](std::size_t) { return -1.5f; },
        [&](std::size_t) { return random() % 10 ? std::copysign(0.0f, normal(random)) : normal(random); },
        [&](std::size_t) { return random() % 500 ? normal(random) : 1e30f * normal(random); },
        [&](std::size_t i) { return std::ldexp(normal(random), static_cast<int>(i >> 15) % 60 - 40); },
        [&](std::size_t i) { return i < count / 2 ? 0.25f : normal(random); },
        [&](std::size_t i) { return std::ldexp(normal(random), static_cast<int>(i % 60) - 40); },
        [&](std::size_t i) { return i % 1000 ? 3e38f : std::numeric_limits<float>::quiet_NaN(); },
        [&](std::size_t) { return 1e-45f * static_cast<float>(random() % 9); },
        [&](std::size_t i) { return i < 40'000 ? normal(random) : 0.25f; },
        [&](std::size_t) { return 1.0f + 0.01f * normal(random); },
        [&](std::size_t) { return 1e20f * normal(random); },
    };
    for (const auto& kind : kinds) {
        std::vector<float> numbers(count);
        std::vector<std::uint16_t> brain(count), half(count), any_half(count);
        BinCounts wanted{}, wanted_brain{}, wanted_half{}, wanted_any_half{};
        for (std::size_t i = 0; i < count; ++i) {
            numbers[i] = kind(i);
            ++wanted[bin_of(numbers[i])];
            std::uint32_t bits;
            std::memcpy(&bits, &numbers[i], sizeof bits);
            brain[i] = static_cast<std::uint16_t>(bits >> 16);
            ++wanted_brain[bits >> histogram_shift];
            half[i] = cut_to_fp16(bits);
            ++wanted_half[bin_of_fp16(half[i])];
            // All that fp16 has, and none too rare.
            any_half[i] = static_cast<std::uint16_t>(bits >> 12);
            ++wanted_any_half[bin_of_fp16(any_half[i])];
        }
        check_histogram(numbers.data(), count, Element::fp32, wanted);
        check_histogram(brain.data(), count, Element::bf16, wanted_brain);
        check_histogram(half.data(), count, Element::fp16, wanted_half);
        check_histogram(any_half.data(), count, Element::fp16, wanted_any_half);
    }
}

TEST("fp64 is counted as fp32") {
    const std::vector<double> wide{1.0, -2.5, 1e300, -1e-300, 0.0};
    BinCounts bins{};
    histogram(wide.data(), wide.size(), Element::fp64, 1, bins);
    for (const double number : wide) CHECK_EQ(bins[bin_of(static_cast<float>(number))], std::uint64_t{1});
}

TEST("counts are added to those before") {
    const std::vector<float> numbers(100, 3.0f);
    BinCounts bins{};
    histogram(numbers.data(), numbers.size(), Element::fp32, 2, bins);
    histogram(numbers.data(), numbers.size(), Element::fp32, 2, bins);
    CHECK_EQ(bins[bin_of(3.0f)], std::uint64_t{200});
    CHECK_EQ(histogram(nullptr, 0, Element::fp32, 2, bins).n_total, 0.0);
}

TEST("both sets of instructions give the same bits and counts for any pattern") {
    std::mt19937 random(5);
    std::vector<float> numbers(70'003);
    for (float& number : numbers) {
        const auto bits = static_cast<std::uint32_t>(random());
        std::memcpy(&number, &bits, sizeof bits);
    }
    for (const float scale : {1.0f, 3e20f, 1e-20f}) {
        QuantiseOrder order;
        order.scale = scale;
        order.counted = true;
        Record first, second;
        use_instructions(Instructions::portable);
        const std::vector<float> portable = quantised(numbers, order, first);
        use_instructions(best_instructions());
        const std::vector<float> best = quantised(numbers, order, second);
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
