// The driver, asked by its names, and launches of the kernels.
#include "dftrace/tensor/gpu_statistics.hpp"

#include <dlfcn.h>

#include <cstring>
#include <memory>

#include "tensor/cuda/order.hpp"

namespace dftrace::tensor {

namespace {

using cuda::Order;
using cuda::Part;
using cuda::Stretch;

// So many blocks for a processor read fastest: with more of them each adds up less before it has to share.
constexpr unsigned blocks_a_processor = 3;
constexpr int processors_attribute = 16;
constexpr unsigned threads_of_values = 32;
// What tables and scratch memory begin with is followed by what needs this.
constexpr std::size_t aligned = 16;

// The text of the kernels, which ends with a zero.
extern "C" const char dftrace_gpu_kernels[];

template <class Function>
bool find(void* library, const char* name, Function& function) {
    void* const found = dlsym(library, name);
    std::memcpy(&function, &found, sizeof found);
    return found != nullptr;
}

std::size_t rounded_up(std::size_t bytes) { return (bytes + aligned - 1) / aligned * aligned; }

}  // namespace

// Functions of the driver, all of which return 0 if nothing went wrong.
struct GpuStatistics::Driver {
    void* library;
    int (*context_now)(void** context);
    int (*push)(void* context);
    int (*pop)(void** context);
    int (*device_of_context)(int* device);
    int (*attribute)(int* value, int attribute, int device);
    int (*load)(void** module, const void* text);
    int (*function)(void** function, void* module, const char* name);
    int (*launch)(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned shared,
                  void* stream, void** arguments, void** extra);
    int (*capturing)(void* stream, int* status);
    int (*error_name)(int error, const char** name);

    const char* name_of(int error) const {
        const char* name = nullptr;
        return error_name(error, &name) == 0 && name ? name : "an error that has no name";
    }

    bool find_all(const char* name) {
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        return library && find(library, "cuCtxGetCurrent", context_now) &&
               find(library, "cuCtxPushCurrent_v2", push) && find(library, "cuCtxPopCurrent_v2", pop) &&
               find(library, "cuCtxGetDevice", device_of_context) &&
               find(library, "cuDeviceGetAttribute", attribute) && find(library, "cuModuleLoadData", load) &&
               find(library, "cuModuleGetFunction", function) && find(library, "cuLaunchKernel", launch) &&
               find(library, "cuStreamIsCapturing", capturing) && find(library, "cuGetErrorName", error_name);
    }
};

GpuStatistics::~GpuStatistics() = default;

GpuStatistics* GpuStatistics::of_current_context(const char* library, std::string& reason) {
    // Those of before: under the interpreter's lock, as all of this.
    static std::vector<std::unique_ptr<GpuStatistics>> loaded;
    auto found = std::make_unique<Driver>();
    if (!found->find_all(library)) {
        const char* const why = dlerror();
        reason = why ? why : "the driver of the GPU lacks a function";
        return nullptr;
    }
    Driver& driver = *found;
    void* context = nullptr;
    if (const int error = driver.context_now(&context); error || !context) {
        reason = error ? driver.name_of(error) : "the thread has no context of the driver's";
        return nullptr;
    }
    for (const auto& one : loaded)
        if (one->context_ == context && one->driver_->library == driver.library) return one.get();
    std::unique_ptr<GpuStatistics> made(new GpuStatistics);
    made->driver_ = std::move(found);
    made->context_ = context;
    int device = 0, processors = 0, error = driver.device_of_context(&device);
    void* module = nullptr;
    if (!error) error = driver.attribute(&processors, processors_attribute, device);
    if (!error) error = driver.load(&module, dftrace_gpu_kernels);
    constexpr const char* names[element_kinds] = {"fp32", "bf16", "fp16", "fp64"};
    for (int element = 0; element < element_kinds; ++element)
        if (!error) error = driver.function(&made->kernels_[element], module, names[element]);
    if (!error) error = driver.function(&made->values_, module, "values");
    if (error) {
        reason = std::string("the driver does not take the kernels: ") + driver.name_of(error);
        return nullptr;
    }
    made->most_blocks_ = blocks_a_processor * static_cast<unsigned>(processors);
    loaded.push_back(std::move(made));
    return loaded.back().get();
}

std::size_t GpuStatistics::scratch_bytes() const { return scratch_bytes(1, most_blocks_); }

std::size_t GpuStatistics::scratch_bytes(std::size_t stretches, unsigned blocks) const {
    return rounded_up(stretches * sizeof(unsigned)) + blocks * sizeof(Part);
}

std::string gpu_statistics_for() {
    constexpr const char* wanted = ".target sm_";
    const char* const found = std::strstr(dftrace_gpu_kernels, wanted);
    const std::string number(found ? found + std::strlen(wanted) : "??", 2);
    return "CUDA, compute capability " + number.substr(0, 1) + "." + number.substr(1) + " and on";
}

const char* GpuStatistics::error() const { return driver_->name_of(error_); }

Launched GpuStatistics::launch(void* kernel, unsigned blocks, void** arguments, void* stream) {
    const Driver& driver = *driver_;
    // Of a stream that cannot be asked, another one is being captured.
    int status = 0;
    if (driver.capturing(stream, &status) != 0 || status != 0) return Launched::capturing;
    void* context = nullptr;
    error_ = driver.context_now(&context);
    const bool elsewhere = context != context_;
    if (!error_ && elsewhere) error_ = driver.push(context_);
    if (error_) return Launched::failed;
    const unsigned threads = kernel == values_ ? threads_of_values : cuda::threads;
    error_ = driver.launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, arguments, nullptr);
    if (elsewhere) driver.pop(&context);
    return error_ ? Launched::failed : Launched::yes;
}

Launched GpuStatistics::write_row(Element element, const GpuStretch& stretch, const GpuLimits& limits,
                                  const GpuPlaces& places) {
    Order order{};
    const unsigned blocks = cuda::blocks_for(stretch.count * bytes_of(element), most_blocks_);
    order.alone = {stretch.data, stretch.count, 0, blocks, stretch.row};
    order.done = static_cast<unsigned*>(places.scratch);
    order.parts = reinterpret_cast<Part*>(static_cast<char*>(places.scratch) + aligned);
    order.rows = static_cast<double*>(places.rows);
    if (limits.wanted) {
        order.format = static_cast<int>(limits.format);
        order.scale = limits.scale;
        order.factor = limits.factor;
        order.limits = limits.scale ? cuda::Limits::from_scale : cuda::Limits::given;
        if (!limits.scale) {
            const Fp8Thresholds thresholds = fp8_thresholds(limits.factor, limits.format);
            order.under = thresholds.under;
            order.over = thresholds.over;
        }
    }
    void* arguments[] = {&order};
    return launch(kernels_[static_cast<int>(element)], blocks, arguments, places.stream);
}

std::vector<char> GpuStatistics::table_of(Element element, const std::vector<GpuStretch>& stretches,
                                          unsigned& blocks) const {
    // Blocks are shared out by size, all of them together as many as fill the device, or one for each.
    unsigned long long bytes = 0;
    for (const GpuStretch& one : stretches) bytes += one.count * bytes_of(element);
    const unsigned long long of_block = bytes / most_blocks_ + 1;
    std::vector<Stretch> entries;
    std::vector<unsigned> owners;
    for (const GpuStretch& one : stretches) {
        const unsigned long long here = one.count * bytes_of(element);
        const auto share = static_cast<unsigned>((here + of_block - 1) / of_block);
        const unsigned used = cuda::blocks_for(here, share);
        entries.push_back({one.data, one.count, static_cast<unsigned>(owners.size()), used, one.row});
        owners.insert(owners.end(), used, static_cast<unsigned>(entries.size() - 1));
    }
    blocks = static_cast<unsigned>(owners.size());
    const std::size_t first = rounded_up(entries.size() * sizeof(Stretch));
    std::vector<char> table(first + owners.size() * sizeof(unsigned));
    std::memcpy(table.data(), entries.data(), entries.size() * sizeof(Stretch));
    std::memcpy(table.data() + first, owners.data(), owners.size() * sizeof(unsigned));
    return table;
}

Launched GpuStatistics::write_rows(Element element, const void* table, std::size_t stretches, unsigned blocks,
                                   const GpuPlaces& places) {
    Order order{};
    order.table = static_cast<const Stretch*>(table);
    order.owners = reinterpret_cast<const unsigned*>(static_cast<const char*>(table) +
                                                     rounded_up(stretches * sizeof(Stretch)));
    order.done = static_cast<unsigned*>(places.scratch);
    order.parts = reinterpret_cast<Part*>(static_cast<char*>(places.scratch) +
                                          rounded_up(stretches * sizeof(unsigned)));
    order.rows = static_cast<double*>(places.rows);
    void* arguments[] = {&order};
    return launch(kernels_[static_cast<int>(element)], blocks, arguments, places.stream);
}

Launched GpuStatistics::write_values(const void* row, float* values, void* stream) {
    void* arguments[] = {&row, &values};
    return launch(values_, 1, arguments, stream);
}

}  // namespace dftrace::tensor
