// Counting of pairs, of the AVX2 table.
#pragma once

#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

void count_pairs_fp32_avx2(const void*, std::size_t, PairTables&);
void count_pairs_bf16_avx2(const void*, std::size_t, PairTables&);
void count_pairs_fp16_avx2(const void*, std::size_t, PairTables&);
void empty_pairs_avx2(std::uint16_t*, std::uint32_t*);
std::uint16_t largest_pair_avx2(const std::uint16_t*);

}  // namespace dftrace::tensor
