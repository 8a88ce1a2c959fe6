// Huffman codes of a limited length, as deflate has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dftrace {

inline constexpr std::size_t most_symbols = 288;

struct HuffmanCode {
    std::array<std::uint16_t, most_symbols> bits;  // the first of them lowest
    std::array<std::uint8_t, most_symbols> length;
};

// The code for symbols that occur so often, none longer than `longest` bits. It is complete: where fewer than
// two symbols occur, one or two more get a code. At most 288 symbols, which occur less than 2^32 times in
// all.
void make_huffman_code(std::span<const std::uint32_t> counts, unsigned longest, HuffmanCode& code) noexcept;

}  // namespace dftrace
