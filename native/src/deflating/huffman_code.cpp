// Two queues make the tree, and what is too deep in it is moved up.
#include "deflating/huffman_code.hpp"

#include <algorithm>

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

}  // namespace

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

}  // namespace dftrace
