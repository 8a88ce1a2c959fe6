// Blocks of whole lines as members of gzip that stand alone, each with its facts in front.
#pragma once

#include <string_view>

#include "dftrace/deflating/block_deflate.hpp"
#include "dftrace/index/block_facts.hpp"
#include "dftrace/text/byte_buffer.hpp"

namespace dftrace {

class GzipMembers {
  public:
    // As of `BlockDeflate`.
    explicit GzipMembers(int level) : deflate_(level) {}

    // The member that holds the block, until the next is asked for. The facts are what the caller knows of
    // its lines: all but numbers of bytes.
    std::string_view member(std::string_view block, const BlockFacts& facts);

  private:
    BlockDeflate deflate_;
    ByteBuffer packed_;  // in memory that nobody has to clear
};

}  // namespace dftrace
