// Counting elements by their uppermost bits, block by block while the block is in the cache.
#include "dftrace/tensor/histogram.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "dftrace/tensor/collect.hpp"
#include "dftrace/tensor/worker_pool.hpp"
#include "tensor/histogram/pair_counts.hpp"

namespace dftrace::tensor {

namespace {

// Read for the statistics, then, from the second-level cache, for the bins.
constexpr std::size_t block_elements = 32 * 1024;
// What one thread takes at a time; counts of so many elements fit in 32 bits.
constexpr std::size_t blocks_of_part = 64;

// Neighbours are often of one bin. In tables of their own they do not wait for each other.
constexpr std::size_t tables = 4;
using Tables = std::array<std::array<std::uint32_t, histogram_bins>, tables>;

template <class Format>
void count_block(const void* data, std::size_t count, Tables& counts) {
    const auto* elements = static_cast<const typename Format::Stored*>(data);
    std::size_t i = 0;
    for (; i + tables <= count; i += tables) {
        for (std::size_t table = 0; table < tables; ++table)
            ++counts[table][bin_of<Format>(elements[i + table])];
    }
    for (; i < count; ++i) ++counts[0][bin_of<Format>(elements[i])];
}

using CountBlock = void (*)(const void* data, std::size_t count, Tables& counts);
constexpr CountBlock count_block_of[element_kinds] = {count_block<Fp32>, count_block<Bf16>, count_block<Fp16>,
                                                      count_block<Fp64>};

struct Part {
    Record record;
    std::unique_ptr<Tables> counts;
    PairCounts pairs;
};

struct Pass {
    const char* data;
    std::size_t count;
    Element element;

    void take(std::size_t index, Part& part) const {
        const std::size_t width = bytes_of(element);
        const std::size_t begin = index * blocks_of_part * block_elements;
        const std::size_t end = std::min(count, begin + blocks_of_part * block_elements);
        part.record = neutral_record();
        part.pairs.begin(element, data + begin * width, end - begin);
        std::uint32_t* bins = (*part.counts)[0].data();
        for (std::size_t at = begin; at < end; at += block_elements) {
            const std::size_t size = std::min(block_elements, end - at);
            const void* start = data + at * width;
            Record record;
            const std::size_t counted = part.pairs.take(start, size, bins, record);
            if (!counted) record = collect(start, size, {element, Depth::six, {}, 1});
            merge(part.record, record);
            const void* rest = static_cast<const char*>(start) + counted * width;
            count_block_of[static_cast<int>(element)](rest, size - counted, *part.counts);
        }
        part.pairs.empty(bins);
    }
};

void add(BinCounts& bins, const Tables& counts) {
    for (const auto& table : counts)
        for (std::size_t bin = 0; bin < histogram_bins; ++bin) bins[bin] += table[bin];
}

}  // namespace

Record histogram(const void* data, std::size_t count, Element element, unsigned threads, BinCounts& bins) {
    const Pass pass{static_cast<const char*>(data), count, element};
    const std::size_t parts =
        (count + blocks_of_part * block_elements - 1) / (blocks_of_part * block_elements);
    // The same bits whatever the number of threads: parts of a fixed size are merged in their order.
    Record whole = neutral_record();
    const std::size_t at_once = std::max<std::size_t>(1, threads);
    std::vector<Part> taken(std::min(parts, at_once));
    for (Part& part : taken) part.counts = std::make_unique<Tables>();
    for (std::size_t first = 0; first < parts; first += at_once) {
        const std::size_t size = std::min(at_once, parts - first);
        auto task = [&](std::size_t index) { pass.take(first + index, taken[index]); };
        for_each_index(size, threads, task);
        for (std::size_t index = 0; index < size; ++index) {
            merge(whole, taken[index].record);
            add(bins, *taken[index].counts);
            std::memset(taken[index].counts.get(), 0, sizeof(Tables));
        }
    }
    return whole;
}

}  // namespace dftrace::tensor
