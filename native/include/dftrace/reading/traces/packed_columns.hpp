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

}  // namespace dftrace
