// Compression of one block of whole lines into bytes that stand alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "dftrace/index/block_facts.hpp"
#include "dftrace/spool/settings.hpp"

namespace dftrace {

class BlockCodec {
  public:
    virtual ~BlockCodec() = default;
    // Appends the compressed block (a whole gzip member, a whole zstd frame, each with its facts in front, or
    // the text itself). The facts are what the caller knows of its lines: all but numbers of bytes.
    virtual void append(std::string& out, std::string_view block, const BlockFacts& facts = {}) = 0;
    // The text of a block; empty if that is not what the bytes are, or if it is longer than `most`.
    virtual std::string text(std::string_view block, std::size_t most) const = 0;
};

// `level` 0 takes the level this project found best for traces; throws std::invalid_argument for
// one that the library does not have.
std::unique_ptr<BlockCodec> make_codec(Compression compression, int level);

// "libdeflate 1.14" and "libzstd 1.5.4".
std::string gzip_library();
std::string zstd_library();

}  // namespace dftrace
