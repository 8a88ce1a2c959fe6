// Blocks by the codecs of the recorder.
#include "packed_block.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>

#include "dftrace/writing/codec.hpp"

using namespace dftrace;

void append_block(std::string& file, bool gzip, std::string_view lines, const BlockReach& reach,
                  BlockHolds holds) {
    // Made once: each has a compressor.
    static const std::unique_ptr<BlockCodec> codecs[] = {make_codec(Compression::zstd, 1),
                                                         make_codec(Compression::gzip, 1)};
    const auto breaks = std::count(lines.begin(), lines.end(), '\n');
    codecs[gzip]->append(file, lines,
                         {.lines = static_cast<std::uint32_t>(breaks), .holds = holds, .reach = reach});
}
