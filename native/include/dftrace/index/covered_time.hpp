// How much of a span's time the spans take that lie directly inside of it on its track.
//
// A span comes behind those inside of it, which is the order of ends within a track. Where that does not hold
// the track is put aside, and its spans are sorted when the file is read a second time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

namespace dftrace {

inline constexpr std::uint64_t no_parent = std::numeric_limits<std::uint64_t>::max();

class CoveredTime {
  public:
    static constexpr std::int64_t not_known = -1;

    // Of the next span of a track, by its number; `not_known` once the track is put aside. Spans with the
    // same parent are remembered as one.
    std::int64_t of(std::uint32_t track, std::int64_t start, std::int64_t duration, std::uint64_t parent);

    struct Span {
        std::int64_t start;
        std::int64_t duration;
        std::uint32_t label;
        std::uint32_t track;
    };
    // Sorts the spans of tracks that were put aside and calls `told(label, covered ns)` for each.
    template <typename Told>
    static void sort_and_tell(std::vector<Span>& spans, Told told) {
        std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
            return std::tuple(a.track, a.start + a.duration, b.start) <
                   std::tuple(b.track, b.start + b.duration, a.start);
        });
        std::vector<Group> open;
        const Span* before = nullptr;
        for (const Span& span : spans) {
            if (!before || before->track != span.track) open.clear();
            before = &span;
            std::int64_t covered = 0;
            enclose(open, span.start, span.duration, no_parent, covered);
            told(span.label, covered);
        }
    }

    bool is_aside(std::uint32_t track) const noexcept {
        return track < tracks_.size() && tracks_[track].aside;
    }
    bool any_aside() const noexcept { return any_aside_; }
    // Before the same spans are read again: tracks that were put aside stay so.
    void begin_again() noexcept;
    // Before those of another process.
    void forget() noexcept;
    // A track on which there will be no more.
    void forget(std::uint32_t track) noexcept;

    // Spans next to each other that no later one lies between, so that one that encloses them has all of
    // them.
    struct Group {
        std::int64_t first;    // start of the first
        std::int64_t last;     // start of the last
        std::int64_t end;      // of the last
        std::int64_t covered;  // by them all
        std::uint64_t parent;
    };
    // What is remembered of a track.
    struct Standing {
        std::int64_t end = 0;
        std::int64_t start = 0;
        std::vector<Group> groups;
        // It can be.
        bool holds() const noexcept;
    };
    std::size_t groups() const noexcept { return groups_; }
    // Appends members of JSON with a comma in front; empty where there was no span with a length.
    std::string tell(std::uint32_t track) const;
    // The same; nothing where there was none.
    std::optional<Standing> standing(std::uint32_t track) const;
    // Goes on from there.
    void resume(std::uint32_t track, const Standing& standing);

  private:
    struct Track {
        std::int64_t end = std::numeric_limits<std::int64_t>::min();
        std::int64_t start = 0;  // of the span that ended then
        std::vector<Group> groups;
        bool known = false;
        bool aside = false;
    };
    // Beyond these the track that asks for one more is put aside.
    static constexpr std::size_t most_groups = 1u << 20;

    // Takes a span in behind the `groups` that end before it; false where it cuts one of them in two.
    static bool enclose(std::vector<Group>& groups, std::int64_t start, std::int64_t duration,
                        std::uint64_t parent, std::int64_t& covered);
    void put_aside(Track& track) noexcept;
    Track& met(std::uint32_t number);

    std::vector<Track> tracks_;
    std::vector<std::uint32_t> met_;
    std::size_t groups_ = 0;
    bool any_aside_ = false;
};

}  // namespace dftrace
