// Formulas of statistics. They are in double precision, in this order of operations on every machine.
#include "dftrace/tensor/statistics.hpp"

#include <cmath>
#include <limits>

namespace dftrace::tensor {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

double of_finite(const Record& record, Statistic statistic) noexcept {
    switch (statistic) {
        case Statistic::min: return record.min;
        case Statistic::max: return record.max;
        case Statistic::mean: return record.mean;
        case Statistic::std:
            return record.n_finite > 1 ? std::sqrt(record.m2 / (record.n_finite - 1)) : unknown;
        case Statistic::l1_norm: return record.absolute_sum;
        case Statistic::l2_norm: return std::sqrt(record.m2 + record.n_finite * record.mean * record.mean);
        case Statistic::cur_amax: return record.amax;
        case Statistic::dynamic_range:
            if (std::isnan(record.amin_nonzero)) return unknown;
            return record.amax != 0 ? std::log2(record.amax) - std::log2(record.amin_nonzero) : 0.0;
        case Statistic::underflows: return 100 * record.n_under / record.n_total;
        case Statistic::overflows: return 100 * record.n_over / record.n_total;
        case Statistic::mse: return record.square_error / record.n_total;
        case Statistic::scale_inv_min: return 1 / record.scale_max;
        case Statistic::scale_inv_max: return 1 / record.scale_min;
    }
    return unknown;
}

double with_infinities(const Record& record, Statistic statistic) noexcept {
    switch (statistic) {
        case Statistic::mean:
            if (record.min > -infinity) return infinity;
            return record.max == infinity ? unknown : -infinity;
        case Statistic::std: return unknown;
        case Statistic::l1_norm:
        case Statistic::l2_norm: return infinity;
        case Statistic::dynamic_range: return std::isinf(record.amin_nonzero) ? unknown : infinity;
        default: return of_finite(record, statistic);
    }
}

}  // namespace

float final_value(const Record& record, Statistic statistic) noexcept {
    // What an 8-bit format does is known whatever the elements are.
    const bool of_tensor = statistic < Statistic::underflows;
    double value = unknown;
    if (!of_tensor || (record.n_nan == 0 && record.n_inf == 0))
        value = of_finite(record, statistic);
    else if (record.n_nan == 0)
        value = with_infinities(record, statistic);
    return static_cast<float>(value);
}

}  // namespace dftrace::tensor
