// A block as one stream of deflate, by whichever way suits its lines.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

#include "dftrace/deflating/line_deflate.hpp"
#include "dftrace/text/byte_buffer.hpp"

struct libdeflate_compressor;

namespace dftrace {

class BlockDeflate {
  public:
    // `level` 0 chooses for each block: deflate for lines where it is hardly larger than libdeflate's level
    // 5, else that; `quick_level` takes deflate for lines for every block. Throws std::invalid_argument for a
    // level that the library does not have.
    static constexpr int quick_level = -1;
    explicit BlockDeflate(int level);
    ~BlockDeflate();
    BlockDeflate(const BlockDeflate&) = delete;
    BlockDeflate& operator=(const BlockDeflate&) = delete;

    // The most bytes that so many take.
    std::size_t most_bytes(std::size_t plain_bytes) const noexcept;
    // Writes the block at `out`, where there is room for the most bytes; how many it took. The same for the
    // same block, whatever was compressed before.
    std::size_t compress(std::string_view block, char* out);

  private:
    static constexpr std::size_t pieces = 4, piece_bytes = 3072, sample_bytes = pieces * 2 * piece_bytes;
    enum class Suits { lines, libdeflate, either };

    std::size_t by_library(std::string_view text, char* out, std::size_t room) noexcept;
    std::string_view sample_of(std::string_view block) noexcept;
    Suits what_suits(std::string_view sample) noexcept;
    bool is_sure(std::string_view block, std::size_t by_lines) const noexcept;

    libdeflate_compressor* library_;
    std::optional<LineDeflate> lines_;  // with level 0 and the quick one
    bool quick_;
    std::array<char, sample_bytes> sample_;
    std::array<char, sample_bytes> sample_out_;
    // Of the sample: what lines take over what the library takes, and over the text.
    double beside_library_ = 0, ratio_ = 0;
    ByteBuffer other_;
};

}  // namespace dftrace
