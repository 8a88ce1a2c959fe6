// Holding a trace against the format, as far as that goes at a glance.
//
// What is plainly right is counted here. All other lines, and all lines where nothing is plain (before the
// header, behind the footer), are given to who called, who has the rules and the words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dftrace/reading/traces/nested_tracks.hpp"
#include "dftrace/reading/traces/plain_lines.hpp"
#include "dftrace/reading/traces/scanner.hpp"

namespace dftrace {

struct CheckedCounts {
    std::uint64_t spans = 0, instants = 0, counters = 0, flows = 0;
};

class Checking {
  public:
    // Where spans have to be sorted to see whether they nest, at most so many are.
    explicit Checking(std::size_t most_spans) : most_spans_(most_spans), nesting_(most_spans) {}

    // For the next block, whole lines; and it is there. It stays as it is until then.
    PlainText& next_text() noexcept;
    void begin();
    // A line that is in no block.
    void pass_over(std::uint64_t bytes) noexcept;

    struct Line {
        std::uint64_t number;       // from 1
        std::uint64_t plain_bytes;  // before it
        std::string_view text;      // without its line break
    };
    // The next line of the block that the rules must look at.
    std::optional<Line> next_line();
    // What holds behind that line: plain lines with such times are well, or none is. Changes once only: a
    // file with two ways of writing times is left to the rules.
    void certify(TimeStyle style) noexcept;
    // A span that the rules have seen, of the line that was given last.
    void add_span(std::uint32_t pid, std::uint32_t tid, std::int64_t start, std::int64_t end);

    const CheckedCounts& counts() const noexcept { return counts_; }
    std::uint64_t lines() const noexcept { return lines_; }
    std::uint64_t plain_bytes() const noexcept { return bytes_before_ + at_; }

    // All was read. True where it must be read again, for the sake of spans in disorder: the same blocks and
    // lines, of which `next_line` gives none then.
    bool end();
    NestedTracks& nesting() noexcept { return nesting_; }
    // Spans of tracks in disorder beyond those that are sorted.
    std::uint64_t left_out() const noexcept { return nesting_.left_out() + (again_ ? odd_left_out_ : 0); }

  private:
    // Many names are forgotten now and then, for they may have no end.
    struct Names {
        Budget budget{std::size_t{1} << 30};
        Labels labels{budget};
        Scanner scanner{labels};
        PlainLines plain{labels};
        std::vector<NestedTracks::Track*> tracks;
        std::vector<std::uint64_t> track_numbers;
    };
    bool passes(std::size_t row);
    void add_row(std::size_t row);
    std::size_t end_of_line(std::size_t row, bool is_row) const;
    void collect_until(std::uint64_t line);

    const std::size_t most_spans_;
    std::unique_ptr<Names> names_;
    PlainText text_;
    Rows rows_;
    std::size_t size_ = 0, at_ = 0, row_ = 0;  // of the text
    std::uint64_t lines_ = 0, bytes_before_ = 0;
    CheckedCounts counts_;
    // Lines are certified behind `certified_from_` up to `certified_to_`, if their times are in this style.
    static constexpr std::uint64_t no_line = std::numeric_limits<std::uint64_t>::max();
    TimeStyle style_ = TimeStyle::none;
    std::uint64_t certified_from_ = no_line, certified_to_ = no_line;
    NestedTracks nesting_;
    std::vector<NestedTracks::Span> odd_spans_;  // by line
    std::size_t odd_collected_ = 0;
    std::uint64_t odd_left_out_ = 0;
    bool again_ = false;
};

}  // namespace dftrace
