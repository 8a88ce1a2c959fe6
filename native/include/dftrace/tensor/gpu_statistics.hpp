// Records of tensors that lie on a GPU of NVIDIA's: launches of kernels that are in this module, by the
// driver that the process has. Nothing waits for the device.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "dftrace/tensor/elements.hpp"
#include "dftrace/tensor/fp8.hpp"

namespace dftrace::tensor {

// All addresses are of the device.

// Which elements an 8-bit format clips or loses: none, by thresholds of the host, or by a scale on the
// device.
struct GpuLimits {
    bool wanted = false;
    Fp8Format format = Fp8Format::e4m3;
    const float* scale = nullptr;  // null for the thresholds
    float factor = 1.0f;           // the scale that they are of
};

struct GpuStretch {
    const void* data;
    std::size_t count;  // one or more
    unsigned row;       // which of the rows becomes its record
};

// Where a launch writes: `rows` are records, `scratch` is for no other stream, and zero at first.
struct GpuPlaces {
    void* rows;
    void* scratch;
    void* stream;
};

enum class Launched { yes, capturing, failed };

// The kernels in one context of the driver's. It stays for as long as the process does.
class GpuStatistics {
  public:
    // Of the calling thread's context; null, with the reason, where there is none, or the driver does not
    // take the kernels. `library` is the driver's.
    static GpuStatistics* of_current_context(const char* library, std::string& reason);

    // How much a launch for one tensor, or for those of a table, keeps between its blocks.
    std::size_t scratch_bytes() const;
    std::size_t scratch_bytes(std::size_t stretches, unsigned blocks) const;

    // Makes a stretch's record.
    Launched write_row(Element element, const GpuStretch& stretch, const GpuLimits& limits,
                       const GpuPlaces& places);

    // What lies on the device for the records of many tensors in one launch, and how many blocks that has.
    std::vector<char> table_of(Element element, const std::vector<GpuStretch>& stretches,
                               unsigned& blocks) const;
    Launched write_rows(Element element, const void* table, std::size_t stretches, unsigned blocks,
                        const GpuPlaces& places);

    // Writes eight statistics of a record, as fp32 numbers in the order of `Statistic`.
    Launched write_values(const void* row, float* values, void* stream);

    // What the driver says of the last launch that failed.
    const char* error() const;

    ~GpuStatistics();

  private:
    struct Driver;

    GpuStatistics() = default;
    Launched launch(void* kernel, unsigned blocks, void** arguments, void* stream);

    std::unique_ptr<Driver> driver_;
    void* context_ = nullptr;
    void* kernels_[element_kinds] = {};
    void* values_ = nullptr;
    unsigned most_blocks_ = 0;
    int error_ = 0;
};

// For which processors the kernels are, in words.
std::string gpu_statistics_for();

}  // namespace dftrace::tensor
