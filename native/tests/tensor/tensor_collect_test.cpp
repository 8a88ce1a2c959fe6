// Records of tensors, for the instructions of any processor and the best ones of this.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"
#include "dftrace/tensor/collect.hpp"
#include "dftrace/tensor/kernels.hpp"

using namespace dftrace::tensor;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

Record record_of(const std::vector<float>& numbers, const CollectOrder& order = {}) {
    return collect(numbers.data(), numbers.size(), order);
}

std::vector<float> normal_numbers(std::size_t count, float mean) {
    std::mt19937 random(7);
    std::normal_distribution<float> distribution(mean, 1.0f);
    std::vector<float> numbers(count);
    for (float& number : numbers) number = distribution(random);
    return numbers;
}

bool near(double value, double wanted, double relative) {
    return std::fabs(value - wanted) <= relative * std::fabs(wanted);
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

}  // namespace

TEST("sums of numbers far from zero keep their digits") {
    const std::vector<float> numbers = normal_numbers(200'003, 1e4f);
    double mean = 0, squares = 0;
    for (const float number : numbers) mean += static_cast<double>(number);
    mean /= static_cast<double>(numbers.size());
    for (const float number : numbers)
        squares += (static_cast<double>(number) - mean) * (static_cast<double>(number) - mean);
    with_each_instructions([&] {
        const Record record = record_of(numbers);
        CHECK(near(record.mean, mean, 1e-9));
        CHECK(near(record.m2, squares, 1e-6));
        CHECK(near(record.absolute_sum, mean * static_cast<double>(numbers.size()), 1e-7));
        CHECK_EQ(record.n_finite, static_cast<double>(numbers.size()));
    });
}

TEST("NaN and infinities are counted, and left out of the sums") {
    for (const std::size_t at : {std::size_t{0}, std::size_t{31}, std::size_t{32}, std::size_t{99}})
        with_each_instructions([&] {
            std::vector<float> numbers(100, 2.0f);
            numbers[at] = nan_value;
            numbers[(at + 50) % 100] = -infinity;
            const Record record = record_of(numbers);
            CHECK_EQ(record.n_nan, 1.0);
            CHECK_EQ(record.n_inf, 1.0);
            CHECK_EQ(record.n_finite, 98.0);
            CHECK_EQ(record.mean, 2.0);
            CHECK_EQ(record.m2, 0.0);
            CHECK_EQ(record.min, -static_cast<double>(infinity));
            CHECK_EQ(record.max, 2.0);
            CHECK_EQ(record.amax, static_cast<double>(infinity));
            CHECK_EQ(record.amin_nonzero, 2.0);
        });
}

TEST("zeros of both signs are zeros, and do not count as lost") {
    with_each_instructions([] {
        CollectOrder order;
        order.depth = Depth::fp8;
        order.thresholds = {0.25f, 8.0f};
        const Record record = record_of({0.0f, -0.0f, 0.25f, -0.25f, 0.26f, 8.0f, -8.5f, infinity}, order);
        CHECK_EQ(record.n_zero, 2.0);
        CHECK_EQ(record.n_under, 2.0);
        CHECK_EQ(record.n_over, 2.0);
        CHECK_EQ(record.amin_nonzero, 0.25);
    });
}

TEST("nothing but zeros has neither a smallest nor a large magnitude") {
    with_each_instructions([] {
        const Record record = record_of(std::vector<float>(70, 0.0f));
        CHECK_EQ(record.amax, 0.0);
        CHECK_EQ(record.amin_nonzero, static_cast<double>(infinity));
        CHECK_EQ(record.n_zero, 70.0);
    });
}

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
    const Record alone = record_of(numbers);
    for (unsigned threads = 2; threads < 6; ++threads) {
        CollectOrder order;
        order.threads = threads;
        const Record shared = record_of(numbers, order);
        CHECK_EQ(shared.mean, alone.mean);
        CHECK_EQ(shared.m2, alone.m2);
        CHECK_EQ(shared.absolute_sum, alone.absolute_sum);
    }
}

TEST("what quantising lost takes the place of what was not known, and of nothing else") {
    Record record = record_of({1.0f, 0.0f, 5.0f}), quantised = neutral_record();
    quantised.n_over = 1;
    quantised.n_under = 2;
    quantised.square_error = 0.5;
    quantised.scale_min = 3;
    quantised.scale_max = 4;
    const Record whole = with_quantisation(record, quantised);
    record.n_over = 1;
    record.n_under = 2;
    record.square_error = 0.5;
    record.scale_min = 3;
    record.scale_max = 4;
    CHECK_EQ(std::memcmp(&whole, &record, sizeof whole), 0);
    CHECK_EQ(whole.n_total, 3.0);
}

TEST("the record of nothing is neutral") {
    const Record record = collect(nullptr, 0, {});
    CHECK_EQ(record.n_total, 0.0);
    CHECK_EQ(record.amax, 0.0);
    CHECK(record.min > record.max);
    Record other = record_of({1.0f, 5.0f});
    merge(other, record);
    CHECK_EQ(other.mean, 3.0);
    CHECK_EQ(other.m2, 8.0);
    CHECK_EQ(other.amin_nonzero, 1.0);
}
