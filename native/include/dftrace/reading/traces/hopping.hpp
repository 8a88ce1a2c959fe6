// From one block of a compressed trace to the next by what they say of themselves, without unpacking any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dftrace/index/block_facts.hpp"

namespace dftrace {

// The block that holds the index line, and what the blocks before it say they hold.
struct IndexBlock {
    std::uint64_t place = 0;
    std::uint64_t packed_bytes = 0;
    std::uint64_t plain_before = 0;
    std::uint64_t lines_before = 0;
    bool operator==(const IndexBlock&) const = default;
};

struct BlockPlace {
    std::uint64_t place = 0;
    std::uint64_t packed_bytes = 0;
    bool operator==(const BlockPlace&) const = default;
};

inline constexpr std::size_t most_untold = 64;

// What the blocks say together, up to the first that says nothing, or after which no block begins.
struct Hops {
    std::uint64_t file_bytes = 0;
    std::uint64_t plain_bytes = 0;
    std::uint64_t lines = 0;
    std::uint64_t blocks = 0;
    BlockReach reach;                 // of those that tell from when to when
    std::vector<BlockPlace> untold;   // of the others; more than `most_untold` are not looked for
    std::optional<IndexBlock> index;  // the last
};

// From the beginning of a file up to `end`. What a block says is believed when another begins where it ends,
// or the file does. The file may be cut meanwhile. Throws std::system_error for a failed read.
Hops hop_blocks(int file, std::uint64_t end);

}  // namespace dftrace
