"""A kernel of Triton with what not every interpreter of it can, with every NumPy."""

import triton
import triton.language as tl


@triton.jit
def zeros(BLOCK: tl.constexpr):
    return tl.zeros([BLOCK], tl.float32)


@triton.jit
def fill(out_ptr, times, BLOCK: tl.constexpr):
    for _ in range(tl.program_id(0), times):
        tl.store(out_ptr + tl.arange(0, BLOCK), zeros(BLOCK))
