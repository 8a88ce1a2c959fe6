// Merging of records: Chan, Golub, LeVeque, Updating Formulae and a Pairwise Algorithm for Computing
// Sample Variances, 1979.
#include "dftrace/tensor/record.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dftrace::tensor {

Record neutral_record() noexcept {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    Record record{};
    record.min = infinity;
    record.max = -infinity;
    record.amin_nonzero = infinity;
    record.scale_min = record.scale_max = unknown;
    return record;
}

void merge(Record& into, const Record& other) noexcept {
    if (other.n_finite > 0) {
        const double n = into.n_finite + other.n_finite, difference = other.mean - into.mean;
        if (into.n_finite > 0) {
            into.m2 += other.m2 + difference * difference * (into.n_finite * other.n_finite / n);
            into.mean += difference * (other.n_finite / n);
        } else {
            into.m2 = other.m2;
            into.mean = other.mean;
        }
        into.n_finite = n;
    }
    into.absolute_sum += other.absolute_sum;
    into.min = std::min(into.min, other.min);
    into.max = std::max(into.max, other.max);
    // NaN says that it was not looked for, and that is so of the whole, too.
    const bool looked = !std::isnan(into.amin_nonzero) && !std::isnan(other.amin_nonzero);
    into.amin_nonzero =
        looked ? std::min(into.amin_nonzero, other.amin_nonzero) : std::numeric_limits<double>::quiet_NaN();
    into.amax = std::max(into.amax, other.amax);
    into.n_nan += other.n_nan;
    into.n_inf += other.n_inf;
    into.n_zero += other.n_zero;
    into.n_over += other.n_over;
    into.n_under += other.n_under;
    into.n_total += other.n_total;
    into.square_error += other.square_error;
    into.scale_min = std::fmin(into.scale_min, other.scale_min);
    into.scale_max = std::fmax(into.scale_max, other.scale_max);
}

Record with_quantisation(const Record& record, const Record& quantised) noexcept {
    Record whole = record;
    whole.n_over = quantised.n_over;
    whole.n_under = quantised.n_under;
    whole.square_error = quantised.square_error;
    whole.scale_min = quantised.scale_min;
    whole.scale_max = quantised.scale_max;
    return whole;
}

}  // namespace dftrace::tensor
