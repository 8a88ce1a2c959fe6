// In front, for each column, how many bytes its greatest difference has, or with `as_they_are` its greatest
// number; then, deflated, the first number of each and the bytes of the others, the lowest of all first. The
// lowest bytes of times are any: those that deflating makes no fewer stand behind all that, as they are.
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
constexpr unsigned as_they_are = 0x80, of_planes = 0x0f;
constexpr unsigned random_shift = 4, most_random = 7;
// So many numbers are looked at, no fewer; and so often may the most frequent byte of random ones be there.
constexpr std::size_t looked_at = 256, fewest_looked_at = 128, random_share = 32;
constexpr std::size_t number_bytes = sizeof(std::int64_t);

// Differences of either sign are small numbers: 0, -1, 1, -2, ...
std::uint64_t folded(std::uint64_t difference) noexcept {
    return difference << 1 ^ static_cast<std::uint64_t>(static_cast<std::int64_t>(difference) >> 63);
}

std::uint64_t unfolded(std::uint64_t folded) noexcept { return folded >> 1 ^ (0 - (folded & 1)); }

// How a column is packed, by the byte in front.
struct Form {
    std::size_t planes, random;
    bool itself;

    explicit Form(char told) noexcept
        : planes(static_cast<unsigned char>(told) & of_planes),
          random(static_cast<unsigned char>(told) >> random_shift & most_random),
          itself(static_cast<unsigned char>(told) & as_they_are) {}
    bool can_be() const noexcept { return planes <= number_bytes && random <= planes; }
    // Of so many numbers, what is deflated, and what is not.
    std::size_t deflated(std::size_t length) const noexcept {
        return length ? number_bytes + (length - 1) * (planes - random) : 0;
    }
    std::size_t plain(std::size_t length) const noexcept { return length ? (length - 1) * random : 0; }
};

// How many of the lowest bytes of numbers are any.
std::size_t random_planes(std::span<const std::uint64_t> numbers, std::size_t planes) noexcept {
    if (numbers.size() < fewest_looked_at) return 0;
    const std::size_t step = std::max(numbers.size() / looked_at, std::size_t{1});
    std::size_t random = 0;
    for (; random < std::min<std::size_t>(planes, most_random); ++random) {
        std::array<std::uint16_t, 256> counts{};
        std::size_t looked = 0;
        for (std::size_t i = 0; i < numbers.size(); i += step, ++looked)
            ++counts[static_cast<unsigned char>(numbers[i] >> 8 * random)];
        if (*std::max_element(counts.begin(), counts.end()) * random_share > looked) break;
    }
    return random;
}

}  // namespace

std::string pack_columns(std::span<const std::span<const std::int64_t>> columns) {
    std::string packed(columns.size(), '\0'), plain, random;
    std::vector<std::uint64_t> differences, numbers;
    for (std::size_t at = 0; at < columns.size(); ++at) {
        const std::span<const std::int64_t> column = columns[at];
        if (column.empty()) continue;
        std::uint64_t others = 0;
        for (const std::int64_t number : column) others |= static_cast<std::uint64_t>(number ^ column[0]);
        if (!others) {
            // One number all over has no bytes behind it.
            plain.append(reinterpret_cast<const char*>(column.data()), number_bytes);
            continue;
        }
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
        const std::vector<std::uint64_t>& told = itself ? numbers : differences;
        const std::size_t plain_planes = random_planes(told, planes);
        packed[at] = static_cast<char>(planes | plain_planes << random_shift | (itself ? as_they_are : 0));
        const Form form(packed[at]);
        std::size_t place = plain.size(), behind = random.size();
        plain.resize(place + form.deflated(column.size()));
        random.resize(behind + form.plain(column.size()));
        std::memcpy(plain.data() + place, column.data(), number_bytes);
        place += number_bytes;
        for (std::size_t plane = 0; plane < planes; ++plane) {
            std::size_t& into = plane < plain_planes ? behind : place;
            char* const to = (plane < plain_planes ? random : plain).data() + into;
            const std::uint64_t* const from = told.data();
            const std::size_t count = told.size();
            for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<char>(from[i] >> 8 * plane);
            into += count;
        }
    }
    // Its tables are large: a thread keeps one.
    thread_local const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> deflate(
        libdeflate_alloc_compressor(level), libdeflate_free_compressor);
    if (!deflate) throw std::bad_alloc();
    const std::size_t front = packed.size();
    packed.resize(front + libdeflate_deflate_compress_bound(deflate.get(), plain.size()));
    packed.resize(front + libdeflate_deflate_compress(deflate.get(), plain.data(), plain.size(),
                                                      packed.data() + front, packed.size() - front));
    return packed.append(random);
}

namespace {

// What is deflated behind the forms, in `plain`, and where what is not begins; null where they are not as
// long as the forms say.
const unsigned char* inflated(std::string_view packed, std::size_t forms, std::size_t bytes,
                              std::size_t behind, std::vector<unsigned char>& plain) {
    if (plain.size() < bytes + 1) plain.resize(bytes + 1);
    thread_local const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)>
        inflate(libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    if (!inflate) throw std::bad_alloc();
    const std::string_view rest = packed.substr(forms);
    std::size_t used = 0, found = 0;
    const bool whole = libdeflate_deflate_decompress_ex(inflate.get(), rest.data(), rest.size(), plain.data(),
                                                        bytes + 1, &used, &found) == LIBDEFLATE_SUCCESS &&
                       found == bytes && rest.size() - used == behind;
    return whole ? reinterpret_cast<const unsigned char*>(rest.data()) + used : nullptr;
}

// One column, of which there is one number at least; where the bytes that are as they are stand is given.
template <std::size_t planes, bool itself>
ColumnBounds taken(const unsigned char* from, const unsigned char* random, std::size_t random_planes,
                   std::size_t length, std::int64_t* into) noexcept {
    std::int64_t before;
    std::memcpy(&before, from, number_bytes);
    from += number_bytes;
    ColumnBounds found{before, before, before, std::numeric_limits<std::int64_t>::max()};
    into[0] = before;
    const std::size_t others = length - 1;
    std::array<const unsigned char*, planes + 1> bytes;
    for (std::size_t plane = 0; plane < planes; ++plane)
        bytes[plane] =
            plane < random_planes ? random + plane * others : from + (plane - random_planes) * others;
    for (std::size_t i = 0; i < others; ++i) {
        std::uint64_t number = 0;
        for (std::size_t plane = 0; plane < planes; ++plane)
            number |= static_cast<std::uint64_t>(bytes[plane][i]) << 8 * plane;
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

using Taking = ColumnBounds (*)(const unsigned char*, const unsigned char*, std::size_t, std::size_t,
                                std::int64_t*) noexcept;

template <std::size_t... planes>
constexpr std::array<Taking, 2 * sizeof...(planes)> all_takings(std::index_sequence<planes...>) {
    return {taken<planes, false>..., taken<planes, true>...};
}

// Columns of so many numbers each, one after the other.
class Columns {
  public:
    // False where the bytes are none of such.
    template <typename LengthOf>
    bool open(std::string_view packed, std::size_t count, LengthOf length_of,
              std::vector<unsigned char>& plain) {
        if (packed.size() < count) return false;
        std::size_t deflated = 0, behind = 0;
        for (std::size_t at = 0; at < count; ++at) {
            const Form form(packed[at]);
            if (!form.can_be()) return false;
            deflated += form.deflated(length_of(at));
            behind += form.plain(length_of(at));
        }
        random_ = inflated(packed, count, deflated, behind, plain);
        from_ = plain.data();
        return random_ != nullptr;
    }

    // The next one, of one number at least, to its place; to none it is all its first number.
    ColumnBounds take(char told, std::size_t length, std::int64_t* into) noexcept {
        static constexpr auto takings = all_takings(std::make_index_sequence<number_bytes + 1>());
        const Form form(told);
        ColumnBounds found;
        if (into) {
            found = takings[form.planes + (form.itself ? number_bytes + 1 : 0)](from_, random_, form.random,
                                                                                length, into);
        } else {
            std::int64_t all;
            std::memcpy(&all, from_, number_bytes);
            found = {all, all, all, length > 1 ? 0 : std::numeric_limits<std::int64_t>::max()};
        }
        from_ += form.deflated(length);
        random_ += form.plain(length);
        return found;
    }

  private:
    const unsigned char *from_ = nullptr, *random_ = nullptr;
};

}  // namespace

bool unpack_columns(std::string_view packed, std::span<const std::size_t> lengths, std::int64_t* into) {
    std::vector<unsigned char> plain;
    Columns columns;
    if (!columns.open(
            packed, lengths.size(), [&](std::size_t at) { return lengths[at]; }, plain))
        return false;
    for (std::size_t at = 0; at < lengths.size(); ++at) {
        if (!lengths[at]) continue;
        columns.take(packed[at], lengths[at], into);
        into += lengths[at];
    }
    return true;
}

bool UnpackedRows::take(std::string_view packed, std::uint32_t check, std::size_t rows,
                        std::span<std::int64_t* const> into, ColumnBounds* bounds) {
    if (packed.size() < into.size() || libdeflate_crc32(0, packed.data(), packed.size()) != check)
        return false;
    Columns columns;
    if (!columns.open(
            packed, into.size(), [rows](std::size_t) { return rows; }, plain_))
        return false;
    for (std::size_t at = 0; rows && at < into.size(); ++at)
        bounds[at] = columns.take(packed[at], rows, into[at]);
    return true;
}

}  // namespace dftrace
