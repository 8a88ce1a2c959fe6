// From what the elements of a block are taken off before they are summed.
#pragma once

#include <cstddef>

#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

// Numbers that lie close together are summed by their distance from the first ones' mean, which the
// quick sums of depth six find.
float shift_of_block(QuickSums probe, const void* start, std::size_t count);

}  // namespace dftrace::tensor
