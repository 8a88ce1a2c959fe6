// Sums of blocks with counts of pairs, of the AVX2 table.
#pragma once

#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

bool counted_sums_fp32_avx2(const void*, std::size_t, float, PairTables&, Record&);
bool counted_sums_bf16_avx2(const void*, std::size_t, float, PairTables&, Record&);
bool counted_sums_fp16_avx2(const void*, std::size_t, float, PairTables&, Record&);
void empty_pairs_avx2(std::uint16_t*, std::uint32_t*);
std::uint16_t largest_pair_avx2(const std::uint16_t*);

}  // namespace dftrace::tensor
