// Counting elements of a tensor in pairs, where they are not too far apart for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "tensor/block_kernels.hpp"

namespace dftrace::tensor {

class PairCounts {
  public:
    // To be called before the first block of a part of so many elements.
    void begin(std::size_t elements) noexcept;

    // Counts elements of a block, or holds their counts back until `empty`. Returns how many of the first
    // ones were counted: none where there are no instructions for it, or the elements lie too far apart.
    std::size_t take(Element element, const void* data, std::size_t count, const Record& record,
                     std::uint32_t* bins);

    // Adds to the bins what was held back.
    void empty(std::uint32_t* bins);

  private:
    void make_room(std::uint32_t* bins);

    struct alignas(64) Table {
        // Not all begin at the same place of a page: processors take addresses for the same by their
        // lower bits.
        static constexpr std::size_t step = 544;
        std::uint16_t pairs[PairTables::codes * PairTables::codes + PairTables::most * step];
    };
    std::unique_ptr<Table> memory_[PairTables::most];
    PairTables tables_{1, 0, nullptr, {}, {}};
    std::size_t pairs_ = 0;  // that are held back
    std::size_t room_ = 0;   // pairs that can be held back besides, whatever they are
    bool one_by_one_ = false;
};

}  // namespace dftrace::tensor
