// The kernels as the driver reads them: the text that native/packaging/gpu_kernels.py has made, and a zero.
asm(R"(
    .pushsection .rodata
    .global dftrace_gpu_kernels
    .hidden dftrace_gpu_kernels
dftrace_gpu_kernels:
    .incbin ")" DFTRACE_GPU_KERNELS R"("
    .byte 0
    .popsection
)");
