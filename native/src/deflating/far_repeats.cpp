// A table of where plain bytes stood.
#include "deflating/far_repeats.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "deflating/same_bytes.hpp"

namespace dftrace {

namespace {

constexpr std::uint32_t shortest = 6;
// As far back as a match may reach nothing is judged; what follows sees all of it.
constexpr std::uint32_t first_judged = farthest_match, stretch = 2 * farthest_match;

constexpr std::uint64_t mixing = 0x9E3779B97F4A7C15u;

std::uint64_t first_bytes(const char* place) noexcept {
    std::uint64_t bytes;
    std::memcpy(&bytes, place, sizeof bytes);
    return bytes << (64 - 8 * shortest);
}

// About what a match takes.
constexpr unsigned bits_of_match(std::uint32_t distance) noexcept {
    return 9 + static_cast<unsigned>(std::bit_width(distance));
}

}  // namespace

void FarRepeats::look(const PackedBlock& block, std::uint64_t block_bits, std::uint32_t block_bytes,
                      std::string_view text, bool in_little) noexcept {
    if (text.size() < first_judged + first_judged / 4) return;
    last_.fill(0);
    const char* const begin = text.data();
    const std::size_t looked_at = in_little ? text.size() : stretch;
    std::uint32_t at = 0;
    for (const PackedBlock::Sequence& sequence : block.sequences()) {
        const std::uint32_t plain_end = at + sequence.plain_bytes, next = plain_end + sequence.length();
        if (next >= looked_at || next + sizeof(std::uint64_t) > text.size()) break;
        if (sequence.plain_bytes < shortest) {
            at = next;
            continue;
        }
        std::uint32_t told = first_judged;
        for (std::uint32_t i = at; i < plain_end; ++i) {
            const std::uint64_t bytes = first_bytes(begin + i);
            const std::uint64_t hash = bytes * mixing >> (64 - table_bits);
            const std::uint32_t older = std::exchange(last_[hash], i);
            // Nearly always another text: this is the one thing to ask.
            if (first_bytes(begin + older) != bytes) [[likely]]
                continue;
            const std::uint32_t distance = i - older;
            if (i < told || distance == 0 || distance > farthest_match) continue;
            const auto most =
                static_cast<std::uint32_t>(std::min<std::size_t>(longest_match, text.size() - i));
            const std::uint32_t length = same_bytes(begin + older, begin + i, most);
            unsigned bits = i + length >= next ? block.bits_of(sequence) : 0;
            for (std::uint32_t n = i; n < std::min(i + length, plain_end); ++n)
                bits += block.bits_of(begin[n]);
            if (bits <= bits_of_match(distance)) continue;
            missed_ += bits - bits_of_match(distance);
            told = i + length;
        }
        at = next;
    }
    if (at > first_judged) bits_ += block_bits * (at - first_judged) / block_bytes;
}

}  // namespace dftrace
