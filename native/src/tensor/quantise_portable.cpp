// The table for any processor: blocks are summed by `careful_sums` alone.
#include "tensor/block_kernels.hpp"
#include "tensor/quantise_one.hpp"

namespace dftrace::tensor {

namespace {

template <class Format>
void quantise(const void* input, void* output, std::size_t count, const QuantiseBlock& block,
              QuantiseCounts* counts) {
    using Stored = typename Format::Stored;
    quantise_one_by_one<Format>(static_cast<const Stored*>(input), static_cast<Stored*>(output), count, block,
                                counts);
}

}  // namespace

const BlockKernels portable_kernels = {
    {}, {quantise<Fp32>, quantise<Bf16>, quantise<Fp16>}, {}, nullptr, nullptr};

}  // namespace dftrace::tensor
