// The last block of a trace that is complete, for what is known only when the process has left its program:
// the status by which it exits.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "dftrace/system/held_file.hpp"
#include "dftrace/writing/codec.hpp"

namespace dftrace {

struct WrittenEnd {
    std::string path;
    FileIdentity file;
    std::uint64_t from = 0, to = 0;  // its bytes; what stands behind them is somebody else's
    std::string text;                // its lines, the closing line last
    BlockFacts facts;
    std::unique_ptr<BlockCodec> codec;

    // Writes the block again, with the status in the closing line. The file is left as it is where it is not
    // the one that was written any more.
    void tell_exit_status(int status) noexcept;
};

}  // namespace dftrace
