// Statistics made of records.
#include <cmath>
#include <limits>

#include "check.hpp"
#include "dftrace/tensor/collect.hpp"
#include "dftrace/tensor/statistics.hpp"

using namespace dftrace::tensor;

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();

template <std::size_t count>
Record record_of(const float (&numbers)[count]) {
    return collect(numbers, count, {});
}

float value_of(const Record& record, Statistic statistic) { return final_value(record, statistic); }

}  // namespace

TEST("the statistics of a few numbers are those that one works out by hand") {
    const Record record = record_of({3.0f, -4.0f, 0.0f, 0.5f, 0.5f});
    CHECK_EQ(value_of(record, Statistic::min), -4.0f);
    CHECK_EQ(value_of(record, Statistic::max), 3.0f);
    CHECK_EQ(value_of(record, Statistic::mean), 0.0f);
    CHECK_EQ(value_of(record, Statistic::std), static_cast<float>(std::sqrt(25.5 / 4)));
    CHECK_EQ(value_of(record, Statistic::l1_norm), 8.0f);
    CHECK_EQ(value_of(record, Statistic::l2_norm), static_cast<float>(std::sqrt(25.5)));
    CHECK_EQ(value_of(record, Statistic::cur_amax), 4.0f);
    CHECK_EQ(value_of(record, Statistic::dynamic_range), 3.0f);
    CHECK_EQ(value_of(record, Statistic::underflows), 0.0f);
    CHECK(std::isnan(value_of(record, Statistic::scale_inv_min)));
}

TEST("a single number has no deviation, and zeros have no range") {
    const Record one = record_of({-2.5f});
    CHECK(std::isnan(value_of(one, Statistic::std)));
    CHECK_EQ(value_of(one, Statistic::l2_norm), 2.5f);
    CHECK_EQ(value_of(record_of({0.0f, -0.0f}), Statistic::dynamic_range), 0.0f);
}

TEST("infinities and NaN give what torch gives for them") {
    const Record up = record_of({1.0f, infinity}), down = record_of({-infinity, 1.0f});
    const Record both = record_of({-infinity, infinity});
    CHECK_EQ(value_of(up, Statistic::mean), infinity);
    CHECK_EQ(value_of(down, Statistic::mean), -infinity);
    CHECK(std::isnan(value_of(both, Statistic::mean)));
    CHECK(std::isnan(value_of(up, Statistic::std)));
    CHECK_EQ(value_of(down, Statistic::l1_norm), infinity);
    CHECK_EQ(value_of(down, Statistic::min), -infinity);
    CHECK_EQ(value_of(up, Statistic::dynamic_range), infinity);
    CHECK(std::isnan(value_of(both, Statistic::dynamic_range)));
    const Record unknown = record_of({1.0f, nan_value, infinity});
    for (int i = 0; i < static_cast<int>(Statistic::underflows); ++i)
        CHECK(std::isnan(value_of(unknown, static_cast<Statistic>(i))));
}

TEST("what an 8-bit format loses is in per cent of all elements, NaN among them") {
    const float numbers[] = {1e-9f, 1.0f, 1000.0f, nan_value};
    CollectOrder order;
    order.depth = Depth::fp8;
    order.thresholds = fp8_thresholds(1.0f, Fp8Format::e4m3);
    Record record = collect(numbers, 4, order);
    record.scale_min = 2;
    record.scale_max = 4;
    record.square_error = 6;
    CHECK_EQ(value_of(record, Statistic::underflows), 25.0f);
    CHECK_EQ(value_of(record, Statistic::overflows), 25.0f);
    CHECK_EQ(value_of(record, Statistic::mse), 1.5f);
    CHECK_EQ(value_of(record, Statistic::scale_inv_min), 0.25f);
    CHECK_EQ(value_of(record, Statistic::scale_inv_max), 0.5f);
}
