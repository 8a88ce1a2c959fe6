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

    // Spans next to each other that no later one lies between, so that one that encloses them has all of
    // them.
    struct Group {
        std::int64_t first;    // start of the first
        std::int64_t last;     // start of the last
        std::int64_t end;      // of the last
        std::int64_t covered;  // by them all
        std::uint64_t parent;
    };
    // What nothing encloses or cuts, and every span comes behind.
    static constexpr Group nothing{std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::min(),
                                   std::numeric_limits<std::int64_t>::min(), 0, no_parent};
    struct Track {
        Group last = nothing;  // ends with the span that ended last
        std::vector<Group> before;
        bool known = false;
        bool aside = false;
        std::uint8_t kind = 0;  // for whoever asks, until the track is forgotten
    };
    // Of that number; until another is asked for.
    Track& track(std::uint32_t number);

    // Of the next span of a track; `not_known` once the track is put aside. Spans with the same parent are
    // remembered as one.
    std::int64_t of(Track& track, std::int64_t start, std::int64_t end, std::uint64_t parent) {
        if (start < track.last.end || start >= end) return behind(track, start, end, parent);
        return remember(track, start, end, parent) ? 0 : not_known;
    }

    struct Span {
        std::int64_t start;
        std::int64_t duration;
        std::uint32_t label;
        std::uint32_t track;
        std::uint64_t parent = no_parent;
    };
    // Sorts the spans of tracks that were put aside and calls `told(span, covered ns)` for each, and behind
    // those of a track `over(track, ns that they take together)`.
    template <typename Told, typename Over>
    static void sort_and_tell(std::vector<Span>& spans, Told told, Over over) {
        std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
            return std::tuple(a.track, a.start + a.duration, b.start) <
                   std::tuple(b.track, b.start + b.duration, a.start);
        });
        CoveredTime sorted(std::numeric_limits<std::size_t>::max());
        Track open;
        const Span* before = nullptr;
        for (const Span& span : spans) {
            if (before && before->track != span.track) {
                over(before->track, taken(open));
                open = {};
            }
            before = &span;
            told(span, sorted.of(open, span.start, span.start + span.duration, no_parent));
        }
        if (before) over(before->track, taken(open));
    }

    CoveredTime() = default;
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

    // The tracks on which spans were met that are not forgotten.
    const std::vector<std::uint32_t>& met() const noexcept { return met_; }
    // What all spans of a track take together so far, each moment once; nothing of one that was put aside.
    std::int64_t taken(std::uint32_t track) const noexcept;

    // What is remembered of a track.
    struct Standing {
        std::int64_t end = 0;
        std::int64_t start = 0;
        std::vector<Group> groups;
        // It can be.
        bool holds() const noexcept;
        // As of `CoveredTime`.
        std::int64_t taken() const noexcept;
    };
    std::size_t groups() const noexcept { return groups_; }
    // Appends members of JSON with a comma in front; empty where there was no span with a length.
    std::string tell(std::uint32_t track) const;
    // The same; nothing where there was none.
    std::optional<Standing> standing(std::uint32_t track) const;
    // Goes on from there.
    void resume(std::uint32_t track, const Standing& standing);

  private:
    // Beyond these the track that asks for one more is put aside.
    static constexpr std::size_t most_groups = 1u << 20;
    explicit CoveredTime(std::size_t most) : most_(most) {}
    static std::int64_t taken(const Track& track) noexcept;

    // The same of a span that does not begin behind all others, or has no length.
    std::int64_t behind(Track& track, std::int64_t start, std::int64_t end, std::uint64_t parent);
    bool remember(Track& track, std::int64_t start, std::int64_t end, std::uint64_t parent) {
        Group& last = track.last;
        if (parent != last.parent || parent == no_parent)
            return remember_apart(track, {start, start, end, end - start, parent});
        last.covered += end - std::max(start, last.end);
        last.last = start;
        last.end = end;
        return true;
    }
    bool remember_apart(Track& track, const Group& group);
    void put_aside(Track& track) noexcept;

    std::vector<Track> tracks_;
    std::vector<std::uint32_t> met_;
    std::size_t groups_ = 0;
    std::size_t most_ = most_groups;
    bool any_aside_ = false;
};

}  // namespace dftrace
