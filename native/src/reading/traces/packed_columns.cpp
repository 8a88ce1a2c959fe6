// In front, for each column, how many bytes its greatest difference has, or with `as_they_are` its greatest
// number; then, deflated, the first number of each and the bytes of the others, the lowest of all first.
#include "dftrace/reading/traces/packed_columns.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <new>

namespace dftrace {

namespace {

constexpr int level = 1;
constexpr unsigned as_they_are = 0x80;
constexpr std::size_t number_bytes = sizeof(std::int64_t);

// Differences of either sign are small numbers: 0, -1, 1, -2, ...
std::uint64_t folded(std::uint64_t difference) noexcept {
    return difference << 1 ^ static_cast<std::uint64_t>(static_cast<std::int64_t>(difference) >> 63);
}

std::uint64_t unfolded(std::uint64_t folded) noexcept { return folded >> 1 ^ (0 - (folded & 1)); }

std::size_t plain_bytes(std::size_t length, std::size_t planes) noexcept {
    return length ? number_bytes + (length - 1) * planes : 0;
}

}  // namespace

std::string pack_columns(std::span<const std::span<const std::int64_t>> columns) {
    std::string packed(columns.size(), '\0'), plain;
    std::vector<std::uint64_t> differences, numbers;
    for (std::size_t at = 0; at < columns.size(); ++at) {
        const std::span<const std::int64_t> column = columns[at];
        if (column.empty()) continue;
        differences.resize(column.size() - 1);
        numbers.resize(column.size() - 1);
        std::uint64_t greatest = 0, greatest_itself = 0;
        int bits = 0, bits_itself = 0;
        for (std::size_t i = 1; i < column.size(); ++i) {
            const auto number = static_cast<std::uint64_t>(column[i]);
            greatest |= differences[i - 1] = folded(number - static_cast<std::uint64_t>(column[i - 1]));
            greatest_itself |= numbers[i - 1] = folded(number);
            bits += std::bit_width(differences[i - 1]);
            bits_itself += std::bit_width(numbers[i - 1]);
        }
        const bool itself = bits_itself < bits;
        const auto planes =
            static_cast<std::size_t>(std::bit_width(itself ? greatest_itself : greatest) + 7) / 8;
        packed[at] = static_cast<char>(planes | (itself ? as_they_are : 0));
        std::size_t place = plain.size();
        plain.resize(place + plain_bytes(column.size(), planes));
        std::memcpy(plain.data() + place, column.data(), number_bytes);
        place += number_bytes;
        for (std::size_t plane = 0; plane < planes; ++plane)
            for (const std::uint64_t number : itself ? numbers : differences)
                plain[place++] = static_cast<char>(number >> 8 * plane);
    }
    // Its tables are large: a thread keeps one.
    thread_local const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> deflate(
        libdeflate_alloc_compressor(level), libdeflate_free_compressor);
    if (!deflate) throw std::bad_alloc();
    const std::size_t front = packed.size();
    packed.resize(front + libdeflate_deflate_compress_bound(deflate.get(), plain.size()));
    packed.resize(front + libdeflate_deflate_compress(deflate.get(), plain.data(), plain.size(),
                                                      packed.data() + front, packed.size() - front));
    return packed;
}

bool unpack_columns(std::string_view packed, std::span<const std::size_t> lengths, std::int64_t* into) {
    if (packed.size() < lengths.size()) return false;
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < lengths.size(); ++at) {
        const std::size_t planes = static_cast<unsigned char>(packed[at]) & ~as_they_are;
        if (planes > number_bytes) return false;
        bytes += plain_bytes(lengths[at], planes);
    }
    std::vector<unsigned char> plain(bytes + 1);
    thread_local const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)>
        inflate(libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    if (!inflate) throw std::bad_alloc();
    const std::string_view behind = packed.substr(lengths.size());
    std::size_t found = 0;
    if (libdeflate_deflate_decompress(inflate.get(), behind.data(), behind.size(), plain.data(), plain.size(),
                                      &found) != LIBDEFLATE_SUCCESS ||
        found != bytes)
        return false;
    const unsigned char* from = plain.data();
    for (std::size_t at = 0; at < lengths.size(); ++at) {
        const std::size_t length = lengths[at];
        if (!length) continue;
        std::fill(into, into + length, 0);
        std::memcpy(into, from, number_bytes);
        from += number_bytes;
        auto* const numbers = reinterpret_cast<std::uint64_t*>(into);
        const unsigned form = static_cast<unsigned char>(packed[at]);
        for (unsigned shift = 0; shift < 8 * (form & ~as_they_are); shift += 8) {
            for (std::size_t i = 1; i < length; ++i)
                numbers[i] |= static_cast<std::uint64_t>(from[i - 1]) << shift;
            from += length - 1;
        }
        for (std::size_t i = 1; i < length; ++i)
            numbers[i] = unfolded(numbers[i]) + (form & as_they_are ? 0 : numbers[i - 1]);
        into += length;
    }
    return true;
}

}  // namespace dftrace
