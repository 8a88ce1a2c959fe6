// The lines of a block, one after the other: those that are plainly right, and those for the rules.
#include "dftrace/reading/traces/checking.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace dftrace {

namespace {

constexpr std::size_t most_labels = 1u << 16;

std::uint64_t track_number(std::uint32_t pid, std::uint32_t tid) noexcept {
    return std::uint64_t{pid} << 32 | tid;
}

}  // namespace

PlainText& Checking::next_text() noexcept {
    bytes_before_ += at_;
    at_ = row_ = size_ = 0;
    return text_;
}

void Checking::begin() {
    if (!names_ || names_->labels.size() > most_labels || names_->labels.tracks() > most_labels)
        names_ = std::make_unique<Names>();
    names_->scanner.scan(text_, rows_);
    size_ = text_.size();
}

void Checking::pass_over(std::uint64_t bytes) noexcept {
    next_text();
    bytes_before_ += bytes;
    ++lines_;
}

std::size_t Checking::end_of_line(std::size_t row, bool is_row) const {
    // The arguments of a row are the last of its line, if it has any.
    const std::size_t from = is_row && rows_.args_at[row] ? rows_.args_at[row] + rows_.args_bytes[row] : at_;
    const char* const text = text_.data();
    return static_cast<std::size_t>(static_cast<const char*>(std::memchr(text + from, '\n', size_ - from)) -
                                    text);
}

bool Checking::passes(std::size_t row) {
    const std::uint64_t number = lines_ + 1;
    return number > certified_from_ && number <= certified_to_ &&
           names_->plain.style_of(rows_, row, text_.view()) == style_;
}

void Checking::add_row(std::size_t row) {
    switch (rows_.ph[row]) {
        case 'i': ++counts_.instants; return;
        case 'C': ++counts_.counters; return;
        case 's':
        case 'f': ++counts_.flows; return;
        default: ++counts_.spans;
    }
    const std::uint32_t number = rows_.track[row];
    if (number >= names_->tracks.size()) {
        names_->tracks.resize(std::size_t{number} + number / 2 + 16);
        names_->track_numbers.resize(names_->tracks.size());
    }
    std::uint64_t& track = names_->track_numbers[number];
    if (!track) {
        const TrackId id = names_->labels.track_id(number);
        track = track_number(static_cast<std::uint32_t>(id.pid), static_cast<std::uint32_t>(id.tid));
        names_->tracks[number] = nesting_.track(track);
    }
    const std::int64_t start = rows_.start[row], end = start + rows_.duration[row];
    if (!again_)
        nesting_.add(names_->tracks[number], start, end, rows_.parent[row]);
    else if (nesting_.is_aside(names_->tracks[number]))
        nesting_.collect({track, start, end, lines_ + 1});
}

std::optional<Checking::Line> Checking::next_line() {
    while (at_ < size_) {
        const bool is_row = row_ < rows_.size && rows_.line_at[row_] == at_;
        const std::size_t row = row_, from = at_, end = end_of_line(row, is_row);
        const bool well = is_row && passes(row);
        if (well) {
            if (again_) collect_until(lines_ + 1);
            add_row(row);
        }
        ++lines_;
        at_ = end + 1;
        row_ += is_row;
        if (!well && !again_)
            return Line{lines_, bytes_before_ + from, text_.view().substr(from, end - from)};
    }
    return std::nullopt;
}

void Checking::certify(TimeStyle style) noexcept {
    if (style == style_ || certified_to_ != no_line) return;
    if (style_ == TimeStyle::none) {
        style_ = style;
        certified_from_ = lines_;
    } else {
        certified_to_ = lines_;
    }
}

void Checking::add_span(std::uint32_t pid, std::uint32_t tid, std::int64_t start, std::int64_t end) {
    const std::uint64_t number = track_number(pid, tid);
    nesting_.add(nesting_.track(number), start, end, no_parent);
    if (odd_spans_.size() < most_spans_)
        odd_spans_.push_back({number, start, end, lines_});
    else
        ++odd_left_out_;
}

// Spans that the rules have seen take their places among the others.
void Checking::collect_until(std::uint64_t line) {
    for (; odd_collected_ < odd_spans_.size() && odd_spans_[odd_collected_].line < line; ++odd_collected_) {
        const NestedTracks::Span& span = odd_spans_[odd_collected_];
        if (nesting_.is_aside(nesting_.track(span.track))) nesting_.collect(span);
    }
}

bool Checking::end() {
    if (again_) collect_until(no_line);
    if (again_ || !nesting_.any_aside()) return false;
    again_ = true;
    next_text();
    lines_ = bytes_before_ = 0;
    counts_ = {};
    return true;
}

}  // namespace dftrace
