// A driver of GPUs without a GPU: a library with the names of CUDA's, which runs the kernels of the same
// source on the host, where the elements of tensors on the "device" lie. Python's tests of the statistics of
// tensors on GPUs compile it, so that everything up to the launch is what a GPU would get.
#include <cstring>
#include <string>

#include "tensor/cuda/kernels.cu"

namespace {

namespace cuda = dftrace::tensor::cuda;

using Kernel = void (*)(const cuda::Order& order, unsigned block);

struct Named {
    const char* name;
    Kernel kernel;
};

const Named kernels[] = {
    {"fp32", cuda::statistics<cuda::OfFp32>},
    {"bf16", cuda::statistics<cuda::OfBf16>},
    {"fp16", cuda::statistics<cuda::OfFp16>},
    {"fp64", cuda::statistics<cuda::OfFp64>},
    {"values", nullptr},
};

constexpr int invalid_value = 1, not_found = 500;
constexpr int processors = 3;

// What tests set and ask: see `stand_in` in tests/inspect/gpu_stand_in.py.
struct State {
    int launch_error = 0;
    int load_error = 0;
    int capturing = 0;
    int launches = 0;
    int pushed = 0;
    int no_context = 0;
    int idle = 0;     // launches do nothing
    int context = 1;  // whose address is the context
};
State state;

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int* stand_in_state() { return &state.launch_error; }

int cuCtxGetCurrent(void** context) {
    *context = state.no_context ? nullptr : &state.context;
    return 0;
}
int cuCtxPushCurrent_v2(void*) { return ++state.pushed, 0; }
int cuCtxPopCurrent_v2(void**) { return --state.pushed, 0; }
int cuCtxGetDevice(int* device) { return *device = 0, 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
    return *value = attribute == 16 ? processors : 0, 0;
}
int cuModuleLoadData(void** module, const void* text) {
    *module = const_cast<void*>(text);
    return state.load_error;
}
// Those alone that are in the text.
int cuModuleGetFunction(void** function, void* module, const char* name) {
    const std::string entry = ".entry " + std::string(name) + "(";
    for (const Named& one : kernels)
        if (std::strcmp(one.name, name) == 0 && std::strstr(static_cast<const char*>(module), entry.c_str()))
            return *function = const_cast<Named*>(&one), 0;
    return not_found;
}
int cuLaunchKernel(void* function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                   unsigned, void*, void** arguments, void**) {
    ++state.launches;
    if (state.launch_error || state.idle) return state.launch_error;
    const auto& named = *static_cast<const Named*>(function);
    if (!named.kernel) {
        const auto& record = **static_cast<const dftrace::tensor::Record* const*>(arguments[0]);
        for (int value = 0; value < cuda::values; ++value)
            cuda::write_values(record, *static_cast<float**>(arguments[1]), value);
        return 0;
    }
    if (threads != cuda::threads) return invalid_value;
    for (unsigned block = 0; block < blocks; ++block)
        named.kernel(*static_cast<const cuda::Order*>(arguments[0]), block);
    return 0;
}
int cuStreamIsCapturing(void*, int* status) { return *status = state.capturing, 0; }
int cuGetErrorName(int error, const char** name) {
    *name = error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
    return 0;
}

}  // extern "C"
