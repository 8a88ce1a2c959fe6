// Which track a line lies on, and what the tracks are called.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "dftrace/spool/record.hpp"
#include "dftrace/text/byte_buffer.hpp"
#include "dftrace/writing/line_formatter.hpp"

namespace dftrace {

// Distributes intervals over lanes so that on each lane any two nest or do not touch. Perfetto
// drops a slice that overlaps another on its track without a word.
class Lanes {
  public:
    // Without `nest`, no two intervals of a lane may touch at all: what lies inside another by chance
    // would be shown as its child.
    explicit Lanes(bool nest) : nest_(nest) {}
    // Number of the lane that takes [start, end]; a new one if none does.
    std::size_t place(std::uint64_t start, std::uint64_t end);
    std::size_t size() const noexcept { return lanes_.size(); }

  private:
    struct Interval {
        std::uint64_t start;
        std::uint64_t end;
    };
    struct Lane {
        std::vector<Interval> outermost;  // disjoint, rising
        std::uint64_t closed_before = 0;  // what lies before was forgotten: nothing goes there
    };
    bool fits(Lane& lane, Interval interval) const;
    bool nest_;
    std::vector<Lane> lanes_;
};

// Synthetic tracks lie above every thread id that Linux gives (at most 2^22).
constexpr std::uint32_t first_task_lane = 0x40000000;
constexpr std::uint32_t first_overlap_lane = 0x50000000;
constexpr std::uint32_t first_logged_lane = 0x60000000;

// Whether a number among those of threads is that of a track apart from them.
constexpr bool is_track_apart(std::uint32_t tid) noexcept {
    return tid >= first_task_lane && tid < first_overlap_lane;
}

// A thread as the writer knows it: whose records, on which tracks.
struct Track {
    std::uint32_t tid = 0;
    std::string name;
    std::string text;  // `,"pid":P,"tid":T`
    bool named = false;
    Lanes overlaps{false};
    Lanes logged{true};  // times given by the user, who meant them to nest
    std::vector<std::uint32_t> overlap_tids;
    std::vector<std::uint32_t> logged_tids;

    // No thread's: spans that one thread began and another ended.
    bool apart() const noexcept { return is_track_apart(tid); }
    // Its own number, and those of the tracks beside it.
    template <typename Do>
    void each_tid(Do what) const {
        what(tid);
        for (const auto* tids : {&overlap_tids, &logged_tids})
            for (const std::uint32_t beside : *tids) what(beside);
    }
};

// Where a line stands: the number of its track, and that as its text tells it.
struct TrackText {
    std::uint32_t tid;
    const std::string& text;
};

// Names are told as lines, which go to `lines` in front of the first line that lies there; a later part of
// the trace begins with all of them.
class Tracks {
  public:
    explicit Tracks(const LineFormatter& formatter) : formatter_(formatter) {}

    // The thread's own, when it is first met.
    void introduce(Track& track, ByteBuffer& lines);
    // Where a record of the thread goes.
    [[gnu::always_inline]] inline TrackText of(const Record& record, Track& track, std::uint64_t start_ns,
                                               std::uint64_t end_ns, ByteBuffer& lines) {
        const bool aside =
            record.kind == Kind::span && (record.flags & (RecordFlag::overlaps | RecordFlag::absolute_time));
        if (!record.lane && !aside) [[likely]]
            return {track.tid, track.text};
        return on_lane(record, track, start_ns, end_ns, lines);
    }
    void name_lane(std::uint32_t lane, const std::string& given, ByteBuffer& lines);
    // One that an earlier part may have named.
    void know_lane(std::uint32_t lane, const std::string& given);
    // A lane for tasks is called by its thread, and its number.
    void name_task_lane(std::uint32_t lane, const Track& track, ByteBuffer& lines);
    // A track apart has no name before a span stands on it that has not ended.
    void introduce_open(const Track& track, ByteBuffer& lines);
    // A track for what overlaps nothing that is known here.
    std::uint32_t add_lane(const std::string& given, ByteBuffer& lines);
    // There is no more of this thread.
    void forget(const Track& track) noexcept;

    // As it was told.
    const std::string& name_of(std::uint32_t tid) { return names_[tid]; }
    // What every part begins with.
    void tell_names(ByteBuffer& out) const;
    // Those made so far beside the threads' own; their numbers are not given again when a trace is resumed.
    std::uint32_t lanes_made() const noexcept { return lanes_made_; }
    void resume(std::uint32_t lanes_made) noexcept { lanes_made_ = lanes_made; }

  private:
    // A track with a name of its own, on which any thread puts spans whose times it gives. What overlaps
    // there goes beside it, on tracks of the same name with a number.
    struct NamedTrack {
        std::string name;
        Lanes lanes{true};
        std::vector<std::uint32_t> tids;
    };

    TrackText on_lane(const Record& record, Track& track, std::uint64_t start_ns, std::uint64_t end_ns,
                      ByteBuffer& lines);
    std::uint32_t on_named_track(std::uint32_t number, std::uint64_t start_ns, std::uint64_t end_ns,
                                 ByteBuffer& lines);
    std::uint32_t beside_thread(Track& track, bool logged, std::uint64_t start_ns, std::uint64_t end_ns,
                                ByteBuffer& lines);
    void name(std::uint32_t tid, const std::string& name, ByteBuffer& lines);

    const LineFormatter& formatter_;
    std::uint32_t lanes_made_ = 0;
    std::unordered_map<std::uint32_t, std::string> lane_texts_;
    std::unordered_map<std::uint32_t, NamedTrack> named_tracks_;
    std::map<std::uint32_t, std::string> names_;
};

}  // namespace dftrace
