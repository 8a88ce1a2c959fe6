// Going through blocks line by line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string_view>

#include "dftrace/reading/traces/plain_lines.hpp"
#include "dftrace/reading/traces/scanner.hpp"

namespace dftrace {

// The lines of blocks, one after the other, with their rows where they have any.
class LineWalk {
  public:
    // For the next block, whole lines; and it is there. It stays as it is until then.
    PlainText& next_text() noexcept;
    void begin();
    // A line that is in no block.
    void pass_over(std::uint64_t bytes) noexcept;
    // To the next line of the block; false behind the last.
    bool step();

    // Of the line that was stepped to: its number, from 1; the plain bytes before it; its text, without the
    // line break; its row, or `no_row`.
    static constexpr std::size_t no_row = std::numeric_limits<std::size_t>::max();
    std::uint64_t lines() const noexcept { return lines_; }
    std::uint64_t bytes_before() const noexcept { return bytes_before_ + from_; }
    std::string_view line() const noexcept { return text_.view().substr(from_, at_ - 1 - from_); }
    std::size_t row() const noexcept { return row_; }
    // How its times are written, if it is plainly right.
    TimeStyle style() {
        return row_ == no_row ? TimeStyle::none : names_->plain.style_of(rows_, row_, text_.view());
    }

    const Rows& rows() const noexcept { return rows_; }
    std::string_view text() const noexcept { return text_.view(); }
    Labels& labels() noexcept { return names_->labels; }
    // Changes when labels and tracks have other numbers than before.
    std::uint64_t generation() const noexcept { return generation_; }
    std::uint64_t plain_bytes() const noexcept { return bytes_before_ + at_; }
    // The same file from its beginning.
    void begin_again() noexcept;

  private:
    // Many names are forgotten now and then, for they may have no end.
    struct Names {
        Budget budget{std::size_t{1} << 30};
        Labels labels{budget};
        Scanner scanner{labels};
        PlainLines plain{labels};
    };
    std::unique_ptr<Names> names_;
    std::uint64_t generation_ = 0;
    PlainText text_;
    Rows rows_;
    std::size_t size_ = 0, from_ = 0, at_ = 0, next_row_ = 0, row_ = no_row;  // of the text
    std::uint64_t lines_ = 0, bytes_before_ = 0;
};

}  // namespace dftrace
