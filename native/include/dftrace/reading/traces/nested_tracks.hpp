// Whether the spans of each track nest: of two that overlap, one lies inside of the other.
//
// Spans come in the order of the lines, mostly that of their ends. A track on which this cannot be told with
// no more memory than it is deep is put aside; its spans are collected when the file is read a second time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <vector>

namespace dftrace {

class NestedTracks {
  public:
    // The end of a span that never ended.
    static constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();

    struct Track;
    struct Span {
        std::uint64_t track;  // pid in the upper half, tid in the lower one
        std::int64_t start, end;
        std::uint64_t line;
    };
    struct Overlap {
        std::uint64_t track, line, other_line;
    };

    // Of tracks that are aside, so many spans are sorted.
    explicit NestedTracks(std::size_t most_spans) : most_spans_(most_spans) {}

    // The same for the same number as long as this is; null where there are too many, which are aside then.
    Track* track(std::uint64_t number);
    // Takes the next span in.
    void add(Track* track, std::int64_t start, std::int64_t end, std::uint64_t parent);

    bool any_aside() const noexcept { return any_aside_; }
    bool is_aside(const Track* track) const noexcept;
    // Spans of tracks that are aside, by their lines.
    void collect(const Span& span);
    // Of those that were collected, how many begin in another and end after it; the first ones by line.
    std::uint64_t overlaps(std::size_t most, std::vector<Overlap>& first);
    std::size_t collected() const noexcept { return spans_.size(); }
    std::uint64_t left_out() const noexcept { return left_out_; }

  private:
    bool nests(Track& track, std::int64_t start, std::int64_t end, std::uint64_t parent);

    const std::size_t most_spans_;
    std::unordered_map<std::uint64_t, Track> tracks_;
    std::size_t groups_ = 0;
    bool any_aside_ = false;
    std::vector<Span> spans_;
    std::uint64_t left_out_ = 0;
};

// Spans next to each other that have the same parent, as one.
struct NestedGroup {
    std::int64_t start, end;
    std::uint64_t parent;
};

struct NestedTracks::Track {
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    std::int64_t start = 0;           // of the span that ended then
    std::vector<NestedGroup> groups;  // one behind the other
    std::vector<std::int64_t> begun;  // starts of spans that never ended
    bool aside = false;
};

}  // namespace dftrace
