// What a block of a compressed trace says of itself in front of its bytes, so that who reads need not unpack
// it to know how long it is and what times it tells of.
//
// In gzip it is a subfield `DF` of the member's header (RFC 1952, FEXTRA), in zstd a frame to be skipped, in
// front of the frame. Whoever does not know it passes over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace dftrace {

// From when to when events reach, in ns as the lines have them.
struct BlockReach {
    std::int64_t first_ns = std::numeric_limits<std::int64_t>::max();  // greater than `last_ns`: no event
    std::int64_t last_ns = std::numeric_limits<std::int64_t>::min();   // of a span without an end its start
    bool endless = false;  // there are such spans, for which a block says that it never ends

    void add(std::int64_t start_ns, std::int64_t end_ns) noexcept {
        if (start_ns < first_ns) first_ns = start_ns;
        if (end_ns > last_ns) last_ns = end_ns;
    }
    void add(const BlockReach& other) noexcept {
        add(other.first_ns, other.last_ns);
        endless |= other.endless;
    }
    // A span without an end.
    void add_from(std::int64_t start_ns) noexcept {
        add(start_ns, start_ns);
        endless = true;
    }
    std::int64_t told_last_ns() const noexcept {
        return endless ? std::numeric_limits<std::int64_t>::max() : last_ns;
    }
    // Of lines whose times nobody has looked at.
    static constexpr BlockReach everywhere() noexcept {
        return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    }
    bool operator==(const BlockReach&) const = default;
};

enum class BlockHolds : std::uint8_t { lines = 0, index = 1 };

struct BlockFacts {
    std::uint32_t packed_bytes = 0;  // of the block, this included
    std::uint32_t plain_bytes = 0;
    std::uint32_t lines = 0;
    BlockHolds holds = BlockHolds::lines;
    BlockReach reach;
    bool operator==(const BlockFacts&) const = default;
    // The same with these bytes; nothing where they are more than can be said: readers know no such block.
    BlockFacts of_size(std::size_t plain, std::size_t packed) const noexcept;
};

// What they take: header of a gzip member, frame of zstd.
inline constexpr std::size_t gzip_head_bytes = 46;
inline constexpr std::size_t zstd_head_bytes = 40;

void put_gzip_head(char* at, const BlockFacts& facts) noexcept;
void put_zstd_head(char* at, const BlockFacts& facts) noexcept;

// Those of the block that `bytes` begin with; `gzip_head_bytes` of them suffice. Nothing where it has none.
// They are what is said, and may be wrong.
std::optional<BlockFacts> block_facts(std::string_view bytes) noexcept;

// Bytes of the zstd frames to be skipped that `bytes` begin with; the last of them may reach beyond.
std::size_t skippable_bytes(std::string_view bytes) noexcept;

// A member of gzip, or a frame of zstd of any kind, may begin so.
bool begins_block(std::string_view bytes) noexcept;

}  // namespace dftrace
