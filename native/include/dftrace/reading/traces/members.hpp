// The blocks of a compressed trace, unpacked by several threads at a time.
//
// What is read here is whole blocks of whole lines, none of them large, as the recorder writes them. At the
// first that is otherwise (torn, broken, larger, cut within a line) reading ends: who called goes on from
// there in its own way.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "dftrace/index/block_facts.hpp"
#include "dftrace/reading/traces/scanner.hpp"

namespace dftrace {

enum class BlockCodec { gzip, zstd };

// A block that takes more, packed or plain, is not read here.
inline constexpr std::size_t most_block_bytes = 16u << 20;

// How many blocks may have been scanned and not added yet, by so many threads: each has its slot. Where it is
// not a block's turn yet, its thread goes on with another one, for to sleep and be woken for the sake of some
// microseconds costs more than they.
constexpr std::size_t block_slots(std::size_t readers) noexcept {
    return readers > 1 ? readers + std::min<std::size_t>(readers, 4) : 1;
}

struct BlockWork {
    // For a block, on any thread, and for one that was begun at a wrong place, too. What it finds belongs to
    // the slot until `add` has come for it. It may keep the text.
    std::function<void(std::size_t reader, std::size_t slot, PlainText& text)> scan;
    // For one block at a time, in the order of the file.
    std::function<void(std::size_t slot)> in_order;
    // Behind that, on any thread.
    std::function<void(std::size_t reader, std::size_t slot)> add;
    // Now and then on the thread that called; false ends the reading.
    std::function<bool()> go_on;
};

// What was read: bytes of the file, and of plain text.
struct BlocksRead {
    std::uint64_t file_bytes = 0;
    std::uint64_t plain_bytes = 0;
    bool stopped = false;  // by `go_on`
};

// Reads blocks from `from` on up to `end`, by up to `readers` threads, of which this one is the first. The
// file may be cut meanwhile. Throws what the work throws, std::bad_alloc, or std::system_error for a failed
// read.
BlocksRead read_blocks(int file, BlockCodec codec, std::uint64_t from, std::uint64_t end, std::size_t readers,
                       const BlockWork& work);

// The same blocks one at a time, on the thread that calls.
class BlockByBlock {
  public:
    BlockByBlock(int file, BlockCodec codec, std::uint64_t end);
    ~BlockByBlock();
    // Unpacks the block that begins at a byte of the file; returns how many bytes it has, or 0 where it is
    // not read here. Throws as `read_blocks` does.
    std::size_t read(std::uint64_t from, PlainText& text);
    // The block that was read last, as it lies in the file.
    std::string_view block() const noexcept;
    // What it says of itself.
    const std::optional<BlockFacts>& facts() const noexcept;

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

}  // namespace dftrace
