// What looking between lines alone has missed: repetitions of plain bytes at all distances.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "deflating/packed_block.hpp"

namespace dftrace {

class FarRepeats {
  public:
    void clear() noexcept { bits_ = missed_ = 0; }
    // Looks into the beginning of a block that has its codes and takes so many bits for so many bytes; `text`
    // is that of the block and what follows. A text of few blocks is looked at to the end of each: its parts
    // are judged by themselves.
    void look(const PackedBlock& block, std::uint64_t block_bits, std::uint32_t block_bytes,
              std::string_view text, bool in_little) noexcept;
    // Of the bits that were looked at, about how many such repetitions would have saved.
    double share_missed() const noexcept {
        return bits_ ? static_cast<double>(missed_) / static_cast<double>(bits_) : 0;
    }

  private:
    static constexpr unsigned table_bits = 12;
    std::array<std::uint32_t, std::size_t{1} << table_bits> last_;  // where such bytes stood
    std::uint64_t bits_ = 0, missed_ = 0;
};

}  // namespace dftrace
