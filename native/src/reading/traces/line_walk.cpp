// Lines and rows side by side.
#include "dftrace/reading/traces/line_walk.hpp"

#include <cstring>

namespace dftrace {

namespace {

constexpr std::size_t most_labels = 1u << 16;

}  // namespace

PlainText& LineWalk::next_text() noexcept {
    bytes_before_ += at_;
    from_ = at_ = next_row_ = size_ = 0;
    row_ = no_row;
    return text_;
}

void LineWalk::begin() {
    if (!names_ || names_->labels.size() > most_labels || names_->labels.tracks() > most_labels) {
        names_ = std::make_unique<Names>();
        ++generation_;
    }
    names_->scanner.scan(text_, rows_);
    size_ = text_.size();
}

void LineWalk::pass_over(std::uint64_t bytes) noexcept {
    next_text();
    bytes_before_ += bytes;
    ++lines_;
}

bool LineWalk::step() {
    if (at_ >= size_) return false;
    from_ = at_;
    row_ = next_row_ < rows_.size && rows_.line_at[next_row_] == from_ ? next_row_++ : no_row;
    // The arguments of a row are the last of its line, or at least in it.
    const std::size_t within =
        row_ != no_row && rows_.args_at[row_] ? rows_.args_at[row_] + rows_.args_bytes[row_] : from_;
    const void* const end = std::memchr(text_.data() + within, '\n', size_ - within);
    at_ = static_cast<std::size_t>(static_cast<const char*>(end) - text_.data()) + 1;
    ++lines_;
    return true;
}

void LineWalk::begin_again() noexcept {
    next_text();
    lines_ = bytes_before_ = 0;
}

}  // namespace dftrace
