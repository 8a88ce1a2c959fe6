// Blocks of a tensor, each summed quickly or, where that will not do, in double precision.
#include "dftrace/tensor/collect.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "dftrace/tensor/worker_pool.hpp"
#include "tensor/block_kernels.hpp"
#include "tensor/block_sums.hpp"
#include "tensor/default_arithmetic.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

// Small enough for a core's second-level cache, should a block have to be read again.
constexpr std::size_t block_elements = 32 * 1024;
constexpr std::size_t probed_elements = 256;
// Below this, waking threads costs more than they save.
constexpr std::size_t shared_elements = 256 * 1024;

// The largest fp16 number that is not above a magnitude.
std::uint32_t fp16_floor(float magnitude) {
    const std::uint32_t nearest = std::min<std::uint32_t>(Fp16::narrow(magnitude), Fp16::infinity - 1);
    return Fp16::widen(static_cast<std::uint16_t>(nearest)) > magnitude ? nearest - 1 : nearest;
}

std::uint32_t floor_bits(float magnitude, Element element) {
    switch (element) {
        case Element::bf16: return bits_of(magnitude) >> 16;
        case Element::fp16: return fp16_floor(magnitude);
        default: return bits_of(magnitude);
    }
}

struct Pass {
    const void* data;
    std::size_t count;
    const CollectOrder& order;
    MagnitudeLimits limits;
    QuickSums quick;
    QuickSums probe;

    Record block(std::size_t index) const {
        const DefaultArithmetic arithmetic;
        const std::size_t begin = index * block_elements, size = std::min(block_elements, count - begin);
        const void* start = static_cast<const char*>(data) + begin * bytes_of(order.element);
        Record record;
        if (quick && quick(start, size, shift_of_block(probe, start, size), limits, record)) return record;
        return careful_sums(start, size, order);
    }
};

}  // namespace

float shift_of_block(QuickSums probe, const void* start, std::size_t count) {
    Record first;
    if (!probe(start, std::min(count, probed_elements), 0.0f, {}, first)) return 0.0f;
    const double variance = first.m2 / first.n_finite;
    return first.mean * first.mean > 4 * variance ? static_cast<float>(first.mean) : 0.0f;
}

Record collect(const void* data, std::size_t count, const CollectOrder& order) {
    Record whole = neutral_record();
    if (count == 0) return whole;
    Pass pass{data, count, order, {}, nullptr, nullptr};
    if (order.depth == Depth::fp8)
        pass.limits = {floor_bits(order.thresholds.over, order.element),
                       floor_bits(order.thresholds.under, order.element) + 1};
    if (order.element != Element::fp64) {
        const auto& of_element = kernels_in_use().quick_sums[static_cast<int>(order.element)];
        pass.quick = of_element[static_cast<int>(order.depth)];
        pass.probe = of_element[static_cast<int>(Depth::six)];
    }
    const std::size_t blocks = (count + block_elements - 1) / block_elements;
    if (blocks == 1) return pass.block(0);
    if (order.threads <= 1 || count < shared_elements) {
        for (std::size_t i = 0; i < blocks; ++i) merge(whole, pass.block(i));
        return whole;
    }
    std::vector<Record> records(blocks);
    auto task = [&](std::size_t index) { records[index] = pass.block(index); };
    for_each_index(blocks, order.threads, task);
    for (const Record& record : records) merge(whole, record);
    return whole;
}

}  // namespace dftrace::tensor
