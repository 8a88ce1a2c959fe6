// Counts by bin are those of a loop over the elements, for every format and number of threads.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "dftrace/tensor/collect.hpp"
#include "dftrace/tensor/histogram.hpp"

using namespace dftrace::tensor;

namespace {

std::uint32_t bin_of(float number) {
    std::uint32_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits >> histogram_shift;
}

std::vector<float> numbers_of_all_sizes(std::size_t count) {
    std::mt19937 random(11);
    std::normal_distribution<float> sizes(0.0f, 20.0f);
    std::vector<float> numbers(count);
    for (float& number : numbers)
        number = std::copysign(std::exp2(sizes(random)), random() % 2 ? 1.0f : -1.0f);
    return numbers;
}

}  // namespace

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

TEST("formats are counted as fp32") {
    const std::vector<double> wide{1.0, -2.5, 1e300, -1e-300, 0.0};
    BinCounts bins{};
    histogram(wide.data(), wide.size(), Element::fp64, 1, bins);
    for (const double number : wide) CHECK_EQ(bins[bin_of(static_cast<float>(number))], std::uint64_t{1});

    const std::vector<std::uint16_t> brain{0x3F80, 0xC020, 0x0000, 0x7F80};
    bins = {};
    histogram(brain.data(), brain.size(), Element::bf16, 1, bins);
    CHECK_EQ(bins[bin_of(1.0f)], std::uint64_t{1});
    CHECK_EQ(bins[bin_of(-2.5f)], std::uint64_t{1});

    const std::vector<std::uint16_t> half{0x3C00, 0xC100, 0x0001};
    bins = {};
    histogram(half.data(), half.size(), Element::fp16, 1, bins);
    CHECK_EQ(bins[bin_of(1.0f)], std::uint64_t{1});
    CHECK_EQ(bins[bin_of(-2.5f)], std::uint64_t{1});
    CHECK_EQ(bins[bin_of(0x1p-24f)], std::uint64_t{1});
}

TEST("counts are added to those before") {
    const std::vector<float> numbers(100, 3.0f);
    BinCounts bins{};
    histogram(numbers.data(), numbers.size(), Element::fp32, 2, bins);
    histogram(numbers.data(), numbers.size(), Element::fp32, 2, bins);
    CHECK_EQ(bins[bin_of(3.0f)], std::uint64_t{200});
    CHECK_EQ(histogram(nullptr, 0, Element::fp32, 2, bins).n_total, 0.0);
}
