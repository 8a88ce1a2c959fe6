// In front, for each column, how many bytes its greatest difference has, or with `as_they_are` its greatest
// number; then, deflated, the first number of each and the bytes of the others, the lowest of all first.
#include "dftrace/reading/traces/packed_columns.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

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
            bits += static_cast<int>(std::bit_width(differences[i - 1]));
            bits_itself += static_cast<int>(std::bit_width(numbers[i - 1]));
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

namespace {

// What is behind the forms, in `plain`; false where it is not as long as they say.
bool inflated(std::string_view packed, std::size_t forms, std::size_t bytes,
              std::vector<unsigned char>& plain) {
    if (plain.size() < bytes + 1) plain.resize(bytes + 1);
    thread_local const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)>
        inflate(libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    if (!inflate) throw std::bad_alloc();
    const std::string_view behind = packed.substr(forms);
    std::size_t found = 0;
    return libdeflate_deflate_decompress(inflate.get(), behind.data(), behind.size(), plain.data(), bytes + 1,
                                         &found) == LIBDEFLATE_SUCCESS &&
           found == bytes;
}

std::size_t planes_of(char form) noexcept { return static_cast<unsigned char>(form) & ~as_they_are; }

// One column, of which there is one number at least.
template <std::size_t planes, bool itself>
ColumnBounds taken(const unsigned char* from, std::size_t length, std::int64_t* into) noexcept {
    std::int64_t before;
    std::memcpy(&before, from, number_bytes);
    from += number_bytes;
    ColumnBounds found{before, before, before, std::numeric_limits<std::int64_t>::max()};
    into[0] = before;
    const std::size_t others = length - 1;
    for (std::size_t i = 0; i < others; ++i) {
        std::uint64_t number = 0;
        for (std::size_t plane = 0; plane < planes; ++plane)
            number |= static_cast<std::uint64_t>(from[plane * others + i]) << 8 * plane;
        number = unfolded(number) + (itself ? 0 : static_cast<std::uint64_t>(before));
        // What is too far apart for a difference is told by the lowest and the greatest.
        const auto step = static_cast<std::int64_t>(number - static_cast<std::uint64_t>(before));
        before = into[i + 1] = static_cast<std::int64_t>(number);
        found.lowest = std::min(found.lowest, before);
        found.greatest = std::max(found.greatest, before);
        found.least_step = std::min(found.least_step, step);
    }
    return found;
}

using Taking = ColumnBounds (*)(const unsigned char*, std::size_t, std::int64_t*) noexcept;

template <std::size_t... planes>
constexpr std::array<Taking, 2 * sizeof...(planes)> all_takings(std::index_sequence<planes...>) {
    return {taken<planes, false>..., taken<planes, true>...};
}

ColumnBounds take_column(char form, const unsigned char* from, std::size_t length,
                         std::int64_t* into) noexcept {
    static constexpr auto takings = all_takings(std::make_index_sequence<number_bytes + 1>());
    const bool itself = static_cast<unsigned char>(form) & as_they_are;
    return takings[planes_of(form) + (itself ? number_bytes + 1 : 0)](from, length, into);
}

}  // namespace

bool unpack_columns(std::string_view packed, std::span<const std::size_t> lengths, std::int64_t* into) {
    if (packed.size() < lengths.size()) return false;
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < lengths.size(); ++at) {
        if (planes_of(packed[at]) > number_bytes) return false;
        bytes += plain_bytes(lengths[at], planes_of(packed[at]));
    }
    std::vector<unsigned char> plain;
    if (!inflated(packed, lengths.size(), bytes, plain)) return false;
    const unsigned char* from = plain.data();
    for (std::size_t at = 0; at < lengths.size(); ++at) {
        if (!lengths[at]) continue;
        take_column(packed[at], from, lengths[at], into);
        from += plain_bytes(lengths[at], planes_of(packed[at]));
        into += lengths[at];
    }
    return true;
}

bool UnpackedRows::take(std::string_view packed, std::uint32_t check, std::size_t rows,
                        std::span<std::int64_t* const> into, ColumnBounds* bounds) {
    if (packed.size() < into.size() || libdeflate_crc32(0, packed.data(), packed.size()) != check)
        return false;
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < into.size(); ++at) {
        if (planes_of(packed[at]) > number_bytes) return false;
        bytes += plain_bytes(rows, planes_of(packed[at]));
    }
    if (!inflated(packed, into.size(), bytes, plain_)) return false;
    if (!rows) return true;
    const unsigned char* from = plain_.data();
    for (std::size_t at = 0; at < into.size(); ++at) {
        if (into[at]) {
            bounds[at] = take_column(packed[at], from, rows, into[at]);
        } else {
            std::int64_t all;
            std::memcpy(&all, from, number_bytes);
            bounds[at] = {all, all, all, rows > 1 ? 0 : std::numeric_limits<std::int64_t>::max()};
        }
        from += plain_bytes(rows, planes_of(packed[at]));
    }
    return true;
}

}  // namespace dftrace
