// Counts, codes for them, and bits.
#include "deflating/packed_block.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>

namespace dftrace {

namespace {

constexpr unsigned most_bits = 15;

struct Leaf {
    std::uint32_t count;
    std::uint16_t symbol;
};

// How many codes have each length, for leaves in the order of their counts.
void count_lengths(std::span<const Leaf> leaves, unsigned longest,
                   std::array<unsigned, most_bits + 1>& with_length) noexcept {
    std::array<std::uint32_t, 2 * most_symbols> weight;
    std::array<std::uint16_t, 2 * most_symbols> parent, depth;
    const std::size_t count = leaves.size(), root = 2 * count - 2;
    for (std::size_t i = 0; i < count; ++i) weight[i] = leaves[i].count;
    for (std::size_t leaf = 0, inner = count, next = count; next <= root; ++next) {
        weight[next] = 0;
        for (int child = 0; child < 2; ++child) {
            const bool takes_leaf = leaf < count && (inner == next || weight[leaf] <= weight[inner]);
            const std::size_t taken = takes_leaf ? leaf++ : inner++;
            weight[next] += weight[taken];
            parent[taken] = static_cast<std::uint16_t>(next);
        }
    }
    depth[root] = 0;
    std::uint32_t room = std::uint32_t{1} << longest;  // in codes of the greatest length
    std::uint32_t taken = 0;
    for (std::size_t node = root; node-- > 0;) {
        depth[node] = static_cast<std::uint16_t>(depth[parent[node]] + 1);
        if (node >= count) continue;
        const unsigned length = std::min<unsigned>(depth[node], longest);
        ++with_length[length];
        taken += std::uint32_t{1} << (longest - length);
    }
    // Each turn gives one of the greatest length a place beside a shorter one, which becomes longer by a bit.
    for (; taken > room; --taken) {
        unsigned length = longest - 1;
        while (with_length[length] == 0) --length;
        --with_length[length];
        with_length[length + 1] += 2;
        --with_length[longest];
    }
}

std::uint16_t reversed(std::uint32_t code, unsigned length) noexcept {
    std::uint32_t bits = 0;
    for (; length != 0; --length, code >>= 1) bits = bits << 1 | (code & 1);
    return static_cast<std::uint16_t>(bits);
}

// The code for symbols that occur so often, none longer than `longest` bits. It is complete: where fewer than
// two symbols occur, one or two more get a code. At most 288 symbols, which occur less than 2^32 times in
// all.
// Two queues make the tree, and what is too deep in it is moved up.
void make_huffman_code(std::span<const std::uint32_t> counts, unsigned longest, HuffmanCode& code) noexcept {
    std::array<Leaf, most_symbols> leaves;
    std::size_t found = 0;
    for (std::size_t i = 0; i < counts.size(); ++i)
        if (counts[i]) leaves[found++] = {counts[i], static_cast<std::uint16_t>(i)};
    for (std::uint16_t i = 0; found < 2; ++i)
        if (!counts[i]) leaves[found++] = {0, i};
    std::sort(leaves.begin(), leaves.begin() + found, [](const Leaf& a, const Leaf& b) {
        return a.count != b.count ? a.count < b.count : a.symbol < b.symbol;
    });
    std::array<unsigned, most_bits + 1> with_length{};
    count_lengths({leaves.data(), found}, longest, with_length);

    code.length.fill(0);
    std::size_t leaf = 0;
    for (unsigned length = longest; length != 0; --length)
        for (unsigned i = 0; i < with_length[length]; ++i)
            code.length[leaves[leaf++].symbol] = static_cast<std::uint8_t>(length);
    std::array<std::uint32_t, most_bits + 2> next{};
    for (unsigned length = 1; length <= most_bits; ++length)
        next[length + 1] = (next[length] + with_length[length]) << 1;
    for (std::size_t i = 0; i < counts.size(); ++i)
        if (const unsigned length = code.length[i]) code.bits[i] = reversed(next[length]++, length);
}

constexpr unsigned end_of_block = 256, first_length = 257, length_symbols = 29;
// Four bytes as they are, or a match, fit into what the writer holds.
constexpr unsigned longest_code = 14, longest_length_code = 7;

constexpr std::array<std::uint8_t, length_symbols> length_extra_bits = {
    0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
constexpr std::array<std::uint16_t, length_symbols> least_length = {
    3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
    31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
// In which order a block tells the lengths of the codes for lengths.
constexpr std::array<std::uint8_t, 19> order_of_lengths = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                           11, 4,  12, 3, 13, 2, 14, 1, 15};
constexpr std::array<std::uint8_t, 3> extra_of_run = {2, 3, 7};  // of 16, 17 and 18

constexpr std::array<std::uint8_t, longest_match + 1> symbols_of_lengths() {
    std::array<std::uint8_t, longest_match + 1> symbols{};
    for (std::uint8_t symbol = 0; symbol < length_symbols; ++symbol)
        for (std::size_t length = least_length[symbol]; length <= longest_match; ++length)
            symbols[length] = symbol;
    return symbols;
}
constexpr auto length_symbol = symbols_of_lengths();

std::uint32_t least_distance(unsigned symbol) noexcept {
    return symbol < 4 ? symbol + 1 : ((2 + (symbol & 1)) << distance_extra_bits(symbol)) + 1;
}

// A code and its extra bits.
struct Coded {
    std::uint32_t bits;
    std::uint32_t count;
};

}  // namespace

void BitWriter::flush() noexcept {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(at, &waiting, sizeof waiting);
    at += bits >> 3;
    waiting >>= bits & 56;
    bits &= 7;
}

char* BitWriter::finish() noexcept {
    flush();
    if (bits) ++at;
    bits = 0;
    waiting = 0;
    return at;
}

void PackedBlock::clear() noexcept {
    sequence_count_ = 0;
    last_bytes_ = 0;
    literal_counts_.fill(0);
    literal_counts_[end_of_block] = 1;
    length_counts_.fill(0);
    distance_counts_.fill(0);
}

void PackedBlock::add_last(const char* text, std::uint32_t bytes) noexcept {
    count_plain(text, bytes);
    last_bytes_ = bytes;
}

std::size_t PackedBlock::letters() const noexcept {
    return std::accumulate(literal_counts_.begin() + 'A', literal_counts_.begin() + end_of_block,
                           std::size_t{0});
}

// The lengths of both codes, one after the other, equal ones told by how many they are.
void PackedBlock::make_head() noexcept {
    literal_codes_ = static_cast<unsigned>(literal_counts_.size());
    while (!literals_.length[literal_codes_ - 1]) --literal_codes_;
    distance_codes_ = static_cast<unsigned>(distance_counts_.size());
    while (!distances_.length[distance_codes_ - 1]) --distance_codes_;
    std::array<std::uint8_t, 286 + 30> all;
    const auto middle = std::copy_n(literals_.length.begin(), literal_codes_, all.begin());
    const auto end = std::copy_n(distances_.length.begin(), distance_codes_, middle);
    head_runs_ = 0;
    const auto put = [this](unsigned symbol, std::size_t extra) {
        head_[head_runs_++] = {static_cast<std::uint8_t>(symbol), static_cast<std::uint8_t>(extra)};
    };
    for (auto at = all.begin(); at != end;) {
        const std::uint8_t length = *at;
        const auto other = std::find_if(at, end, [length](std::uint8_t each) { return each != length; });
        auto run = static_cast<std::size_t>(other - at);
        at = other;
        if (length != 0) {
            put(length, 0);
            --run;
        }
        while (run >= 3) {
            const std::size_t told = std::min<std::size_t>(run, length != 0 ? 6 : 138);
            if (length != 0)
                put(16, told - 3);
            else if (told < 11)
                put(17, told - 3);
            else
                put(18, told - 11);
            run -= told;
        }
        for (; run != 0; --run) put(length, 0);
    }
}

std::uint64_t PackedBlock::make_codes() noexcept {
    for (std::size_t length = least_length[0]; length <= longest_match; ++length)
        literal_counts_[first_length + length_symbol[length]] += length_counts_[length];
    make_huffman_code(literal_counts_, longest_code, literals_);
    make_huffman_code(distance_counts_, longest_code, distances_);
    make_head();
    std::array<std::uint32_t, 19> counts{};
    for (std::size_t i = 0; i < head_runs_; ++i) ++counts[head_[i].symbol];
    make_huffman_code(counts, longest_length_code, lengths_);
    length_codes_ = 19;
    while (length_codes_ > 4 && !lengths_.length[order_of_lengths[length_codes_ - 1]]) --length_codes_;

    std::uint64_t bits = 3 + 5 + 5 + 4 + 3 * length_codes_;
    for (std::size_t i = 0; i < counts.size(); ++i)
        bits += std::uint64_t{counts[i]} * (lengths_.length[i] + (i < 16 ? 0u : extra_of_run[i - 16]));
    for (std::size_t i = 0; i < literal_counts_.size(); ++i)
        bits += std::uint64_t{literal_counts_[i]} *
                (literals_.length[i] + (i < first_length ? 0u : length_extra_bits[i - first_length]));
    for (unsigned i = 0; i < distance_counts_.size(); ++i)
        bits += std::uint64_t{distance_counts_[i]} * (distances_.length[i] + distance_extra_bits(i));
    return bits;
}

unsigned PackedBlock::bits_of(const Sequence& match) const noexcept {
    const unsigned length = length_symbol[match.length()], distance = match.symbol();
    return literals_.length[first_length + length] + length_extra_bits[length] + distances_.length[distance] +
           distance_extra_bits(distance);
}

void PackedBlock::write(BitWriter& out, const char* text, bool last) const noexcept {
    out.put(last ? 1 : 0, 1);
    out.put(2, 2);
    out.put(literal_codes_ - first_length, 5);
    out.put(distance_codes_ - 1, 5);
    out.put(length_codes_ - 4, 4);
    for (unsigned i = 0; i < length_codes_; ++i) {
        out.flush();
        out.put(lengths_.length[order_of_lengths[i]], 3);
    }
    for (std::size_t i = 0; i < head_runs_; ++i) {
        const LengthRun& run = head_[i];
        out.flush();
        out.put(lengths_.bits[run.symbol], lengths_.length[run.symbol]);
        if (run.symbol >= 16) out.put(run.extra, extra_of_run[run.symbol - 16u]);
    }
    out.flush();

    std::array<Coded, 256> plain;
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = {literals_.bits[i], literals_.length[i]};
    std::array<Coded, longest_match + 1> lengths;
    for (unsigned length = least_length[0]; length <= longest_match; ++length) {
        const unsigned symbol = length_symbol[length], code = literals_.length[first_length + symbol];
        lengths[length] = {literals_.bits[first_length + symbol] | (length - least_length[symbol]) << code,
                           code + length_extra_bits[symbol]};
    }
    std::array<std::uint32_t, 30> least;
    for (unsigned symbol = 0; symbol < least.size(); ++symbol) least[symbol] = least_distance(symbol) - 1;

    BitWriter writer = out;  // its members in registers
    const auto put_plain = [&](std::uint32_t bytes) {
        const auto put_one = [&] {
            const Coded& coded = plain[static_cast<unsigned char>(*text++)];
            writer.put(coded.bits, coded.count);
        };
        for (; bytes >= 4; bytes -= 4) {
            for (int i = 0; i < 4; ++i) put_one();
            writer.flush();
        }
        for (; bytes != 0; --bytes) put_one();
        writer.flush();
    };
    for (std::size_t i = 0; i < sequence_count_; ++i) {
        const Sequence& sequence = sequences_[i];
        put_plain(sequence.plain_bytes);
        const unsigned bytes = sequence.length();
        const Coded& length = lengths[bytes];
        writer.put(length.bits, length.count);
        const unsigned symbol = sequence.symbol();
        writer.put(distances_.bits[symbol], distances_.length[symbol]);
        writer.put(sequence.distance - least[symbol], distance_extra_bits(symbol));
        writer.flush();
        text += bytes;
    }
    put_plain(last_bytes_);
    writer.put(literals_.bits[end_of_block], literals_.length[end_of_block]);
    writer.flush();
    out = writer;
}

}  // namespace dftrace
