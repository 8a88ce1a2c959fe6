// What one pass over a tensor leaves: seventeen numbers that can be merged with those of other tensors.
#pragma once

#include <cstddef>

namespace dftrace::tensor {

// n_finite, mean, m2 and absolute_sum are of the finite elements; min, max and amax of all but NaN;
// amin_nonzero of all but NaN and zero. The counts are exact up to 2^53.
//
// The record has no constructor, so that files built for other processors emit no code for it.
struct Record {
    double n_finite;
    double mean;
    double m2;  // sum of (x - mean)^2
    double absolute_sum;
    double min;
    double max;
    double amin_nonzero;
    double amax;
    double n_nan;
    double n_inf;
    double n_zero;
    double n_over;   // clipped by the largest number of an 8-bit format
    double n_under;  // not zero, but zero in an 8-bit format
    double n_total;
    double square_error;  // of the quantised elements
    double scale_min;     // NaN where no scale is known
    double scale_max;
};

constexpr std::size_t record_fields = sizeof(Record) / sizeof(double);

// The record of no elements at all.
Record neutral_record() noexcept;

// Makes of `into` the record of its elements and those of `other`.
void merge(Record& into, const Record& other) noexcept;

// The record of a tensor with what quantising the same tensor lost.
Record with_quantisation(const Record& record, const Record& quantised) noexcept;

}  // namespace dftrace::tensor
