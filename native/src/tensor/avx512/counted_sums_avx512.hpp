// Sums of blocks of 16-bit elements with counts of pairs, of the AVX-512 table.
#pragma once

#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

bool counted_sums_bf16_avx512(const void*, std::size_t, float, PairTables&, Record&);
bool counted_sums_fp16_avx512(const void*, std::size_t, float, PairTables&, Record&);

}  // namespace dftrace::tensor
