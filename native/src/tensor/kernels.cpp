// Choice of the instructions.
#include "dftrace/tensor/kernels.hpp"

#ifdef DFTRACE_AVX2
#include <cpuid.h>
#endif

#include <atomic>

#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

namespace {

std::atomic<Instructions>& chosen() noexcept {
    static std::atomic<Instructions> instructions{best_instructions()};
    return instructions;
}

}  // namespace

Instructions best_instructions() noexcept {
#ifdef DFTRACE_AVX2
    __builtin_cpu_init();
    // The conversion of fp16 cannot be asked for by name in every compiler.
    unsigned a = 0, b = 0, c = 0, d = 0;
    const bool converts_fp16 = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
    if (converts_fp16 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return Instructions::avx2;
#endif
    return Instructions::portable;
}

Instructions instructions_in_use() noexcept { return chosen().load(std::memory_order_relaxed); }

Instructions use_instructions(Instructions wanted) noexcept {
    if (wanted == Instructions::portable || wanted == best_instructions()) chosen().store(wanted);
    return instructions_in_use();
}

const BlockKernels& kernels_in_use() noexcept {
#ifdef DFTRACE_AVX2
    if (instructions_in_use() == Instructions::avx2) return avx2_kernels;
#endif
    return portable_kernels;
}

}  // namespace dftrace::tensor
