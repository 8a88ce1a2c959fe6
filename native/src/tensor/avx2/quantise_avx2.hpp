// The quantisers of the AVX2 table.
#pragma once

#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

void quantise_fp32_avx2(const void*, void*, std::size_t, const QuantiseBlock&, QuantiseCounts*);
void quantise_bf16_avx2(const void*, void*, std::size_t, const QuantiseBlock&, QuantiseCounts*);
void quantise_fp16_avx2(const void*, void*, std::size_t, const QuantiseBlock&, QuantiseCounts*);

}  // namespace dftrace::tensor
