// The ends of tensors, and their blocks on threads, for all instructions: what sanitizers look at. That the
// numbers are right is for tests/inspect/numerics.
#include <cmath>
#include <random>
#include <vector>

#include "check.hpp"
#include "dftrace/tensor/collect.hpp"
#include "dftrace/tensor/kernels.hpp"

using namespace dftrace::tensor;

namespace {

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
