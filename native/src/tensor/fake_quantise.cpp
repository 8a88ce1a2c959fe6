// Blocks of a tensor to an 8-bit format and back.
#include "dftrace/tensor/fake_quantise.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "dftrace/tensor/worker_pool.hpp"
#include "tensor/block_kernels.hpp"
#include "tensor/default_arithmetic.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

constexpr std::size_t block_elements = 32 * 1024;
constexpr std::size_t shared_elements = 256 * 1024;

// Memory that nobody has written to yet costs more to get, page by page, than to fill. Kernels that
// have larger pages for those who ask give them; others leave it as it is.
void ask_for_large_pages(void* memory, std::size_t bytes) {
    constexpr std::uintptr_t page = 2 << 20;
    const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + page - 1) / page * page;
    const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / page * page;
    if (end > begin + page) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

QuantiseBlock block_of(const QuantiseOrder& order) {
    const Fp8Grid grid = grid_of(order.format);
    const Fp8Thresholds thresholds = fp8_thresholds(order.scale, order.format);
    QuantiseBlock block;
    block.scale = order.scale;
    block.reciprocal = reciprocal_of(order.scale);
    block.largest = grid.largest;
    block.smallest_normal = std::ldexp(1.0f, grid.smallest_exponent);
    block.magic = std::ldexp(1.5f, 23 + grid.smallest_exponent - grid.mantissa_bits);
    block.dropped_bits = static_cast<std::uint32_t>(23 - grid.mantissa_bits);
    block.over = bits_of(thresholds.over);
    block.under_end = bits_of(thresholds.under) + 1;
    return block;
}

}  // namespace

Record fake_quantise(const void* input, void* output, std::size_t count, const QuantiseOrder& order) {
    const QuantiseBlock block = block_of(order);
    const Quantise quantise = kernels_in_use().quantise[static_cast<int>(order.element)];
    const std::size_t blocks = (count + block_elements - 1) / block_elements;
    if (output) ask_for_large_pages(output, count * bytes_of(order.element));
    std::vector<QuantiseCounts> counts(order.counted ? blocks : 0);
    auto task = [&](std::size_t index) {
        const DefaultArithmetic arithmetic;
        const std::size_t begin = index * block_elements, size = std::min(block_elements, count - begin);
        const std::size_t offset = begin * bytes_of(order.element);
        const auto* from = static_cast<const char*>(input) + offset;
        auto* to = output ? static_cast<char*>(output) + offset : nullptr;
        quantise(from, to, size, block, order.counted ? &counts[index] : nullptr);
    };
    for_each_index(blocks, count < shared_elements ? 1 : order.threads, task);
    Record record = neutral_record();
    record.n_total = static_cast<double>(count);
    record.scale_min = record.scale_max = static_cast<double>(order.scale);
    for (const QuantiseCounts& one : counts) {
        record.n_over += static_cast<double>(one.over);
        record.n_under += static_cast<double>(one.under);
        record.square_error += one.square_error;
    }
    return record;
}

}  // namespace dftrace::tensor
