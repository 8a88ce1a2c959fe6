// What traces add up to: figures for each phase, category and name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dftrace/index/block_facts.hpp"
#include "dftrace/index/budget.hpp"
#include "dftrace/index/covered_time.hpp"
#include "dftrace/index/set_back.hpp"
#include "dftrace/reading/traces/labels.hpp"
#include "dftrace/reading/traces/rows.hpp"
#include "dftrace/reading/traces/scanner.hpp"
#include "dftrace/reading/traces/span_sums.hpp"

namespace dftrace {

// The spans of a category, the bodies of its loops apart from the others.
struct CategoryFigures {
    std::string category;
    bool bodies = false;
    SpanFigures spans;  // without a label
};

struct OtherFigures {
    std::string ph;
    const Label* label = nullptr;
    std::uint64_t count = 0;
};

// Other events have one of these, as the format has it.
inline constexpr std::string_view other_phases = "BiCsfM";

// What an index line says that the lines before it add up to.
struct KnownFigures {
    struct Spans {
        Label label;
        std::uint64_t count = 0;
        std::int64_t total = 0, self = 0, least = 0, greatest = 0;
        bool exact = false;
        std::vector<std::int64_t> durations;  // as `Durations` tells them
    };
    struct Others {
        std::string ph;
        Label label;
        std::uint64_t count = 0;
    };
    struct Track {
        TrackId id;
        CoveredTime::Standing standing;
    };
    std::vector<Spans> spans;
    std::vector<Others> others;
    std::vector<Track> tracks;
    std::uint64_t lines = 0;
    BlockReach reach;  // where it was asked for
    // Among these: spans without a duration, and all that was not readable.
    std::uint64_t without_duration = 0, unreadable = 0;
};

// Spans of tracks in disorder that are sorted, of all files of a process; those of more are not looked at.
inline constexpr std::size_t most_sorted_spans = 8'000'000;

class Totals {
  public:
    // `readers` threads, each with a number of its own, may add at a time; there are `block_slots` of rows.
    Totals(std::size_t readers, std::size_t most_bytes);

    Scanner& scanner(std::size_t reader) { return readers_[reader]->scanner; }
    Rows& rows(std::size_t slot) { return rows_[slot]; }
    // What needs the order of the lines: for one slot at a time, block by block.
    void add_in_order(std::size_t slot);
    // The rest, to the figures of a reader.
    void add(std::size_t reader, std::size_t slot);

    // In place of the lines before an index line, at the beginning of a file. False where the figures cannot
    // be: nothing is added then.
    bool add_known(const KnownFigures& known);

    // The files of a process have been read, in their order; true where they must be read once more, by
    // `add_in_order` alone, for the sake of spans in disorder.
    bool end_process();
    bool again() const noexcept { return again_; }
    // How long the process went whose files have been read, from its first event to its last; nothing where
    // that is not known. It counts for the names of which it has spans.
    void add_wall(std::optional<std::int64_t> ns);

    std::size_t lines() const noexcept { return lines_; }
    std::uint64_t events() const;
    std::uint64_t unreadable() const;
    // From when to when the events reach that were read since this was asked last.
    BlockReach take_reach();
    // What the spans of the main thread take together, each moment once, of the process that has ended last;
    // of the thread with most of that where the main thread has none, nothing where none has, or it is not
    // known.
    std::optional<std::int64_t> taken() const noexcept { return taken_; }
    // How the clock was set back by which the process that has ended last was recorded: it is known of one
    // whose files were read once more.
    SetBack clock() const noexcept { return clock_; }
    // What was read, processes that have ended; nothing where that cannot be told in 64 bits, or self time is
    // not known.
    std::optional<KnownFigures> known();
    // The greatest totals first, as many as asked for; and how many there are in all.
    std::vector<SpanFigures> spans(std::size_t most, std::size_t& all);
    std::vector<OtherFigures> others(std::size_t most, std::size_t& all) const;
    std::vector<CategoryFigures> categories(std::size_t most, std::size_t& all);

  private:
    static constexpr std::string_view phases = other_phases;
    struct Figures : SpanSum {
        std::array<std::uint64_t, phases.size()> others{};
    };
    // Category, and whether of the bodies of loops.
    using CategoryKey = std::pair<std::string, bool>;
    struct alignas(shared_line_bytes) Reader {
        explicit Reader(Labels& labels) : scanner(labels) {}
        Scanner scanner;
        std::vector<Figures> figures;  // by label
        std::map<std::pair<std::string, std::uint32_t>, std::uint64_t> odd_phases;
        std::vector<bool> format_own;  // by label: a name of metadata that is no event
        std::uint64_t events = 0, unreadable = 0;
        BlockReach reach;
    };
    // What a span on no thread's own track covers, which is all of it where it is a frame.
    std::int64_t on_other_track(CoveredTime::Track& at, const CoveredTime::Span& span, std::int64_t covered);
    bool is_frame(const CoveredTime::Span& span, std::int64_t covered);
    bool is_lane(std::uint32_t track) const;
    bool has_frame_name(std::uint32_t label);
    // Whether the frames among known figures are known, whose time is then added to `frames`.
    bool knows_frames(const KnownFigures& known, std::vector<std::size_t>& frames) const;
    std::optional<std::int64_t> taken_by_main(const std::map<std::uint32_t, std::int64_t>& sorted) const;
    void add_rows(const Rows& rows, Reader& to);
    void add_span(Reader& to, std::uint32_t label, std::int64_t duration);
    void add_other(Reader& to, const Rows& rows, std::size_t row);
    void add_odd(Reader& to, const std::string& ph, std::uint32_t label, std::uint64_t count);
    void merge();
    std::optional<WideNs> self(std::uint32_t label, const Figures& of) const;

    Budget budget_;
    Labels labels_;
    // One more than there are readers: theirs, where there are so many labels that each having its own
    // figures would take too much.
    std::vector<std::unique_ptr<Reader>> readers_;
    std::vector<Rows> rows_;  // by slot
    std::mutex common_lock_;
    CoveredTime covered_time_;
    std::vector<WideNs> covered_;       // by label, of the processes that have ended
    std::vector<WideNs> covered_now_;   // of the one that is read
    std::vector<bool> self_not_known_;  // by label
    std::vector<CoveredTime::Span> aside_;
    std::vector<std::uint8_t> frame_names_;  // by label: not asked yet, no, or yes
    WideNs frames_now_ = 0;                  // what frames take in the process that is read
    std::optional<std::int64_t> taken_;
    bool too_many_aside_ = false;
    std::vector<std::uint64_t> counted_;  // by label: spans of the processes whose wall time has been added
    std::vector<Wall> walls_;             // by label
    std::map<CategoryKey, Wall> category_walls_;
    SetBack clock_;
    std::size_t lines_ = 0;
    bool again_ = false;
};

}  // namespace dftrace
