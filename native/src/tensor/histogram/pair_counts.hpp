// Counting elements of a tensor in pairs, where they are not too far apart for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "dftrace/tensor/histogram.hpp"
#include "tensor/block_kernels.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

constexpr std::uint32_t magnitude_bins = histogram_bins / 2;

// In which bin an element lies.
template <class Format>
std::uint32_t bin_of(typename Format::Stored stored) {
    return bits_of(static_cast<float>(Format::widen(stored))) >> histogram_shift;
}

}  // namespace

class PairCounts {
  public:
    // To be called before the first block of a part of so many elements, whose blocks follow in order.
    void begin(Element element, const void* data, std::size_t elements);

    // Makes the record of a block, and counts elements of it or holds their counts back until `empty`, for
    // which they have to stay where they are. Returns how many of the first ones were counted: none where
    // there are no instructions for it or the elements lie too far apart. Then there is no record either.
    std::size_t take(const void* data, std::size_t count, std::uint32_t* bins, Record& record);

    // Adds to the bins what was held back.
    void empty(std::uint32_t* bins);

  private:
    void watch(const Record& record);
    bool make_tables();
    void look_at_first_block(std::uint32_t* bins);

    struct alignas(64) Table {
        // Not all begin at the same place of a page: processors take addresses for the same by their
        // lower bits.
        static constexpr std::size_t step = 544;
        std::uint16_t pairs[PairTables::codes * PairTables::codes + PairTables::most * step];
    };
    std::unique_ptr<Table> memory_[PairTables::most];
    PairTables tables_{1, 0, nullptr, {}, {}};
    Element element_ = Element::fp32;
    const BlockKernels* kernels_ = nullptr;
    bool one_by_one_ = true;
    std::uint32_t window_ = 0;    // where it should begin, by the elements seen last
    const void* held_ = nullptr;  // the first element whose counts are held back
    std::size_t pairs_ = 0;       // that are held back
    std::size_t most_held_ = 0;   // pairs that may be
};

}  // namespace dftrace::tensor
