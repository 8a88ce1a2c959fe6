// Percentiles of few durations are exact, and those of many as near as is promised.
#include "dftrace/index/durations.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

double exactly(std::vector<std::int64_t> times, double share) {
    std::sort(times.begin(), times.end());
    const double place = share * static_cast<double>(times.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, times.size() - 1);
    const auto low = static_cast<double>(times[below]), high = static_cast<double>(times[above]);
    return low + (high - low) * (place - static_cast<double>(below));
}

std::vector<std::int64_t> some(std::size_t count, unsigned seed) {
    std::mt19937_64 noise(seed);
    std::vector<std::int64_t> times;
    for (std::size_t i = 0; i < count; ++i)
        times.push_back(static_cast<std::int64_t>(noise() >> (noise() % 62 + 2)));
    return times;
}

}  // namespace

TEST("percentiles are within their bound, by one thread or by two") {
    Budget budget(64 << 20);
    for (const std::size_t count : {1u, 2u, 127u, 128u, 129u, 5000u}) {
        const std::vector<std::int64_t> times = some(count, static_cast<unsigned>(count));
        const auto [least, greatest] = std::minmax_element(times.begin(), times.end());
        Durations whole, one, other;
        for (std::size_t i = 0; i < count; ++i) {
            whole.add(times[i], budget);
            (i % 3 ? one : other).add(times[i], budget);
        }
        one.add(other, budget);
        CHECK_EQ(one.size(), count);
        for (const double share : {0.0, 0.5, 0.95, 0.99, 1.0}) {
            const double truth = exactly(times, share);
            const double told = whole.quantile(share, *least, *greatest);
            CHECK(std::abs(told - truth) <= (count <= Durations::most_exact ? 0 : truth * 0.00776));
            CHECK_EQ(told, one.quantile(share, *least, *greatest));
        }
    }
}

TEST("durations take no more memory than they were given") {
    Budget budget(20'000);
    Durations durations;
    bool refused = false;
    try {
        for (const std::int64_t ns : some(5000, 3)) durations.add(ns, budget);
    } catch (const TooMuch&) {
        refused = true;
    }
    CHECK(refused);
}
