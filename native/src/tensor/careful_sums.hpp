// A block of a tensor in double precision: any numbers, any processor.
#pragma once

#include <cstddef>

#include "dftrace/tensor/collect.hpp"

namespace dftrace::tensor {

Record careful_sums(const void* data, std::size_t count, const CollectOrder& order);

}  // namespace dftrace::tensor
