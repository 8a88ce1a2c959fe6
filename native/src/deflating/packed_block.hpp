// One block of deflate: texts and repetitions in codes made for them.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace dftrace {

inline constexpr std::size_t most_symbols = 288;

struct HuffmanCode {
    std::array<std::uint16_t, most_symbols> bits;  // the first of them lowest
    std::array<std::uint8_t, most_symbols> length;
};

inline constexpr std::uint32_t shortest_match = 3, longest_match = 258;
inline constexpr std::uint32_t farthest_match = 32768;
inline constexpr std::size_t most_sequences = std::size_t{1} << 14;

// Which code tells a distance, of 1 to `farthest_match`: two for each power of two.
inline unsigned distance_symbol(std::uint32_t distance) noexcept {
    const std::uint32_t below = distance - 1;
    if (below < 2) return below;
    const auto power = static_cast<unsigned>(std::bit_width(below)) - 1;
    return 2 * power + (below >> (power - 1) & 1);
}
// How many bits follow it.
inline unsigned distance_extra_bits(unsigned symbol) noexcept { return symbol < 4 ? 0 : symbol / 2 - 1; }

// Bits to bytes. Room is the caller's to look after: 8 bytes more than what is written.
struct BitWriter {
    char* at = nullptr;
    std::uint64_t waiting = 0;
    unsigned bits = 0;

    void put(std::uint64_t value, unsigned count) noexcept {
        waiting |= value << bits;
        bits += count;
    }
    void flush() noexcept;    // fewer than 8 bits wait behind it
    char* finish() noexcept;  // the end of the bytes
};

class PackedBlock {
  public:
    class Sequence {
      public:
        std::uint32_t length() const noexcept { return match & ((1u << length_bits) - 1); }
        unsigned symbol() const noexcept { return match >> length_bits; }

        std::uint32_t plain_bytes;  // in front of the match
        std::uint16_t match;        // its length, and above that the symbol of its distance
        std::uint16_t distance;     // less one
    };

    PackedBlock() : sequences_(new Sequence[most_sequences]) { clear(); }

    void clear() noexcept;
    bool full() const noexcept { return sequence_count_ == most_sequences; }
    // Bytes as they are, from `text`, and `length` of those that stood `distance` in front.
    void add(const char* text, std::uint32_t bytes, std::uint32_t length, std::uint32_t distance) noexcept {
        count_plain(text, bytes);
        ++length_counts_[length];
        const unsigned symbol = distance_symbol(distance);
        ++distance_counts_[symbol];
        sequences_[sequence_count_++] = {bytes, static_cast<std::uint16_t>(symbol << length_bits | length),
                                         static_cast<std::uint16_t>(distance - 1)};
    }
    // Bytes with which the block ends.
    void add_last(const char* text, std::uint32_t bytes) noexcept;

    // How many of the bytes as they are stand for letters, or for parts of them.
    std::size_t letters() const noexcept;
    // Makes the codes. How many bits the block takes.
    std::uint64_t make_codes() noexcept;
    // What it is made of, the bytes with which it ends left out.
    std::span<const Sequence> sequences() const noexcept { return {sequences_.get(), sequence_count_}; }
    // How many bits a byte as it is takes, and a match. After `make_codes`.
    unsigned bits_of(char plain) const noexcept {
        return literals_.length[static_cast<unsigned char>(plain)];
    }
    unsigned bits_of(const Sequence& match) const noexcept;
    // Writes the block, whose text begins at `text`. After `make_codes`.
    void write(BitWriter& out, const char* text, bool last) const noexcept;

  private:
    static constexpr unsigned length_bits = 9;
    struct LengthRun {
        std::uint8_t symbol;
        std::uint8_t extra;
    };
    void count_plain(const char* text, std::uint32_t bytes) noexcept {
        for (std::uint32_t i = 0; i < bytes; ++i) ++literal_counts_[static_cast<unsigned char>(text[i])];
    }
    void make_head() noexcept;

    std::unique_ptr<Sequence[]> sequences_;
    std::size_t sequence_count_;
    std::uint32_t last_bytes_;
    std::array<std::uint32_t, 286> literal_counts_;
    std::array<std::uint32_t, longest_match + 1> length_counts_;
    std::array<std::uint32_t, 30> distance_counts_;
    HuffmanCode literals_, distances_, lengths_;
    unsigned literal_codes_ = 0, distance_codes_ = 0, length_codes_ = 0;
    std::array<LengthRun, 320> head_;
    std::size_t head_runs_ = 0;
};

}  // namespace dftrace
