// The statistics of a tensor, made of its record: one formula for each.
#pragma once

#include "dftrace/tensor/record.hpp"

namespace dftrace::tensor {

// In the order in which the Python side numbers their names.
enum class Statistic {
    min,
    max,
    mean,
    std,  // of a sample
    l1_norm,
    l2_norm,
    cur_amax,
    dynamic_range,  // octaves between the smallest magnitude that is not zero and the largest
    // What an 8-bit format does to the tensor.
    underflows,  // per cent, and so the next
    overflows,
    mse,
    scale_inv_min,
    scale_inv_max,
};
constexpr int statistic_kinds = 13;

// Rounded to fp32. Where there are NaN or infinities among the elements, the statistics of the tensor itself
// are what torch gives for them; the numbers of the record leave them out. A record of no elements has none.
float final_value(const Record& record, Statistic statistic) noexcept;

}  // namespace dftrace::tensor
