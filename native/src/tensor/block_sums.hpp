// A block of a tensor in double precision, and from what its elements are taken off before they are summed
// quickly.
#pragma once

#include <cstddef>

#include "dftrace/tensor/collect.hpp"
#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

// Any numbers, any processor.
Record careful_sums(const void* data, std::size_t count, const CollectOrder& order);

// Numbers that lie close together are summed by their distance from the first ones' mean, which the
// quick sums of depth six find.
float shift_of_block(QuickSums probe, const void* start, std::size_t count);

}  // namespace dftrace::tensor
