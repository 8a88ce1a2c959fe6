// Columns of whole numbers in few bytes: differences of neighbours, byte by byte of all of them, deflated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dftrace {

std::string pack_columns(std::span<const std::span<const std::int64_t>> columns);

// The columns one behind the other, of so many numbers each; false where the bytes are none of such.
bool unpack_columns(std::string_view packed, std::span<const std::size_t> lengths, std::int64_t* into);

// What a column holds, of one number at least.
struct ColumnBounds {
    std::int64_t first, lowest, greatest;
    std::int64_t least_step;  // from one to the next; the greatest number there is, where there is no next
};

// Rows that were packed, of many, one after the other.
class UnpackedRows {
  public:
    // Each column to where it shall be, and what it holds; one for which that is null is all its first
    // number. False where the bytes are none of so many rows, or others than those that `check` was made of.
    bool take(std::string_view packed, std::uint32_t check, std::size_t rows,
              std::span<std::int64_t* const> into, ColumnBounds* bounds);

  private:
    std::vector<unsigned char> plain_;
};

}  // namespace dftrace
