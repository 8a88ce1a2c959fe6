// Choice of the instructions, and the table for any processor.
#include "dftrace/tensor/kernels.hpp"

#ifdef DFTRACE_AVX2
#include <cpuid.h>
#endif

#include <atomic>

#include "tensor/block_kernels.hpp"
#include "tensor/quantise_one.hpp"

namespace dftrace::tensor {

namespace {

// For any processor: blocks are summed by `careful_sums` alone.
template <class Format>
void quantise(const void* input, void* output, std::size_t count, const QuantiseBlock& block,
              QuantiseCounts* counts) {
    using Stored = typename Format::Stored;
    quantise_one_by_one<Format>(static_cast<const Stored*>(input), static_cast<Stored*>(output), count, block,
                                counts);
}

#ifdef DFTRACE_AVX2
// With wider registers nothing else is quicker: it waits for memory, fp32 too.
const BlockKernels& avx512_kernels() noexcept {
    static const BlockKernels kernels = [] {
        BlockKernels made = avx2_kernels;
        made.counted_sums[static_cast<int>(Element::bf16)] = counted_sums_bf16_avx512;
        made.counted_sums[static_cast<int>(Element::fp16)] = counted_sums_fp16_avx512;
        return made;
    }();
    return kernels;
}

// The first processors with AVX-512 are slower for as long as they use it, and do not have the last of these.
bool has_avx512() noexcept {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vbmi2");
}
#endif

std::atomic<Instructions>& chosen() noexcept {
    static std::atomic<Instructions> instructions{best_instructions()};
    return instructions;
}

}  // namespace

const BlockKernels portable_kernels = {
    {}, {quantise<Fp32>, quantise<Bf16>, quantise<Fp16>}, {}, nullptr, nullptr};

Instructions best_instructions() noexcept {
#ifdef DFTRACE_AVX2
    __builtin_cpu_init();
    // The conversion of fp16 cannot be asked for by name in every compiler.
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool converts_fp16 = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    if (converts_fp16 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return has_avx512() ? Instructions::avx512 : Instructions::avx2;
#endif
    return Instructions::portable;
}

Instructions instructions_in_use() noexcept { return chosen().load(std::memory_order_relaxed); }

Instructions use_instructions(Instructions wanted) noexcept {
    if (wanted <= best_instructions()) chosen().store(wanted);
    return instructions_in_use();
}

const BlockKernels& kernels_in_use() noexcept {
#ifdef DFTRACE_AVX2
    if (instructions_in_use() == Instructions::avx512) return avx512_kernels();
    if (instructions_in_use() == Instructions::avx2) return avx2_kernels;
#endif
    return portable_kernels;
}

}  // namespace dftrace::tensor
