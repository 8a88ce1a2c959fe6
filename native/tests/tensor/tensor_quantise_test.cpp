// Numbers to the 8-bit formats and back by all instructions; tests/inspect/numerics holds them against the
// grid.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "check.hpp"
#include "dftrace/tensor/fake_quantise.hpp"
#include "dftrace/tensor/kernels.hpp"

using namespace dftrace::tensor;

namespace {

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
