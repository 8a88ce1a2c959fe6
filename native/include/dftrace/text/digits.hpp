// Digits of decimal numbers, eight at a time.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dftrace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t every_byte(unsigned char byte) noexcept { return 0x0101010101010101ull * byte; }
constexpr std::uint64_t high_bits = every_byte(0x80);

inline std::uint64_t word_at(const char* at) noexcept {
    std::uint64_t word;
    std::memcpy(&word, at, 8);
    return word;
}

// How many of the lowest bytes of a word are digits.
inline unsigned count_digits(std::uint64_t word) noexcept {
    word ^= every_byte('0');
    const std::uint64_t others = ((word + every_byte(0x76)) | word) & high_bits;
    return others ? static_cast<unsigned>(std::countr_zero(others)) >> 3 : 8;
}

// The number that so many of the lowest bytes make, which are digits, one at least.
inline std::uint32_t number_of_digits(std::uint64_t word, unsigned count) noexcept {
    word = (word ^ every_byte('0')) << 8 * (8 - count);
    word = word * 10 + (word >> 8);
    word = ((word & 0x000000FF000000FFull) * 0x000F424000000064ull +
            ((word >> 16) & 0x000000FF000000FFull) * 0x0000271000000001ull) >>
           32;
    return static_cast<std::uint32_t>(word);
}

// Passes over digits; false where there are none.
inline bool pass_digits(const char*& at) noexcept {
    const char* const from = at;
    unsigned count;
    do at += count = count_digits(word_at(at));
    while (count == 8);
    return at != from;
}

// Passes over a number as JSON has it; false where there is none.
inline bool pass_json_number(const char*& at) noexcept {
    if (*at == '-') ++at;
    if (*at == '0')
        ++at;
    else if (!pass_digits(at))
        return false;
    if (*at == '.' && (++at, !pass_digits(at))) return false;
    if (*at == 'e' || *at == 'E') {
        ++at;
        if (*at == '+' || *at == '-') ++at;
        return pass_digits(at);
    }
    return true;
}

// Whether a text is the same as so many bytes, of which as many can be read.
inline bool same_bytes(const char* at, const char* text, std::size_t bytes) noexcept {
    if (bytes < 8) {
        for (std::size_t which = 0; which < bytes; ++which)
            if (at[which] != text[which]) return false;
        return true;
    }
    std::size_t from = 0;
    for (; from + 8 <= bytes; from += 8)
        if (word_at(at + from) != word_at(text + from)) return false;
    return word_at(at + bytes - 8) == word_at(text + bytes - 8);
}

}  // namespace dftrace
