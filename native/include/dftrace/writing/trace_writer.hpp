// From records to the trace file: formats, gathers lines into blocks, writes, and marks the spool
// so that a block is never lost and never written twice, whenever the process dies.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/tables.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/text/byte_buffer.hpp"
#include "dftrace/writing/blocks_ahead.hpp"
#include "dftrace/writing/codec.hpp"
#include "dftrace/writing/lanes.hpp"
#include "dftrace/writing/line_formatter.hpp"
#include "dftrace/writing/open_lines.hpp"
#include "dftrace/writing/part_index.hpp"
#include "dftrace/writing/trace_parts.hpp"

namespace dftrace {

// Synthetic tracks lie above every thread id that Linux gives (at most 2^22).
constexpr std::uint32_t first_task_lane = 0x40000000;
constexpr std::uint32_t first_overlap_lane = 0x50000000;
constexpr std::uint32_t first_logged_lane = 0x60000000;

// Whether a number among those of threads is that of a track apart from them.
constexpr bool is_track_apart(std::uint32_t tid) noexcept {
    return tid >= first_task_lane && tid < first_overlap_lane;
}

// Wall clocks are set now and then: nearer than this to the present is not the future.
constexpr std::uint64_t clock_margin_ns = 3'600'000'000'000;

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
};

// A track with a name of its own, on which any thread puts spans whose times it gives. What overlaps there
// goes beside it, on tracks of the same name with a number.
struct NamedTrack {
    std::string name;
    Lanes lanes{true};
    std::vector<std::uint32_t> tids;
};

class TraceWriter {
  public:
    TraceWriter(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid);

    // Formats records [unit->scan, limit) of `unit`; `scan` moves on. Stops early, returning
    // false, when a full block cannot be written.
    bool records(UnitHeader* unit, std::uint32_t& scan, std::uint32_t limit, Track& track,
                 const BlobTables& tables, const ClockMap& clock);
    // What it costs is measured beside that.
    void do_without_index() noexcept { index_.give_up(); }
    // Records that ended before this tick are left out.
    void leave_out_before(std::uint64_t tick) noexcept { first_tick_ = tick; }
    // How many were since the last call.
    std::uint64_t take_left_out() noexcept { return std::exchange(left_out_, 0); }
    // Writes what is gathered: from here on there are only unfinished spans. 0 or an errno.
    int end_records();
    // A span that never ended.
    void unfinished(const OpenSpan& span, Track& track, const BlobTables& tables, const ClockMap& clock);
    // A span that was to be recorded when it is over; its arguments, which the tables take in, are told of
    // it.
    void awaited(const AwaitedSpan& span, Track& track, BlobTables& tables, const ClockMap& clock);
    // The dump of a flight recorder begins. In this order: all spans that are open, all records, the spans
    // of the dump before of which nothing is known any more, what else there is to tell, and, once that is
    // written, those that are open still. Each returns 0 or an errno.
    int begin_dump();
    void open_now(const OpenSpan& span, Track& track, const BlobTables& tables, const ClockMap& clock);
    int lost_spans();
    int end_dump();
    // At the end of a run whose last records nobody asked for: true if a dump told of it as an open span.
    // `finish` tells it as it is.
    bool ended_since(const Record& record, Track& track, const BlobTables& tables, const ClockMap& clock);
    // An instant of the recorder's own; `args` are JSON members, each with a comma in front. 0, or the
    // errno for which an earlier block has to go first.
    int note(std::string_view name_json, std::string_view args, Track& track, std::uint64_t id,
             std::uint64_t ns);
    void name_track(Track& track);
    // The thread is over, and its last record was formatted.
    void forget_track(const Track& track);
    // Writes what is gathered. 0, or the errno of the failure: the block is kept for the next try.
    int flush();
    int finish(const Ending& ending);
    // Lines of events in the files.
    std::uint64_t lines_written() const noexcept;
    // Lines of events in files that somebody removed or cut while they were written.
    std::uint64_t spoilt_lines() const noexcept { return spoilt_lines_; }

    // Continues a trace as the spool's marks say it stands; 0 or an errno.
    int resume();

    TraceStage stage() const noexcept { return stage_; }
    bool anything_to_write() const noexcept { return text_.size() != 0; }
    int last_error() const noexcept { return last_error_; }
    const std::string& path() const noexcept { return parts_.path(); }
    // For any thread, at any time.
    Written written() const { return parts_.written(); }
    // In a forked child: closes the parent's file.
    void abandon() noexcept { parts_.abandon(); }
    // From here on no record is believed that is later than `now_ns`, or older than the clock's
    // beginning, by a margin; it is counted instead.
    void doubt_after(std::uint64_t now_ns) noexcept { latest_ns_ = now_ns + clock_margin_ns; }
    std::uint64_t unreadable() const noexcept { return unreadable_; }
    void belongs_to(FileOwner owner) noexcept { parts_.belongs_to(owner); }
    void lies_in(const Directory& directory) noexcept { parts_.lies_in(directory); }
    // Header and units are copies: see TraceParts.
    void keeps_marks_by(KeepMark keep) { parts_.keeps_marks_by(std::move(keep)); }
    // Where somebody removes or cuts the file every write fails, in place of going on in another file, and
    // the units are as they were before the part. For a spool that holds still what was written from it.
    void keeps_to_its_file() noexcept { keeps_to_its_file_ = true; }
    int check_file();  // 0 or an errno
    bool file_was_spoilt() const noexcept { return file_was_spoilt_; }
    // Lets other threads, so many at most, compress blocks of records while this one formats the next.
    // What is written is the same. After an error nothing more can be written.
    void compress_ahead(unsigned threads) noexcept;
    // Called with each unit whose records are in the file, after every successful write.
    std::function<void(UnitHeader*, std::uint32_t)> on_durable;

  private:
    bool plausible(const Record& record, const ClockMap& clock) const;
    void one(const Record& record, Track& track, const BlobTables& tables, const ClockMap& clock);
    // Where a line stands: on which track, and from when to when it reaches, as it says itself; where it has
    // no end, its start.
    struct Placed {
        std::uint32_t tid = 0;
        BlockReach reach;
    };
    Placed format(ByteBuffer& out, const Record& record, Track& track, const BlobTables& tables,
                  const ClockMap& clock);
    Placed line(ByteBuffer& out, const Record& record, Track& track, const BlobTables& tables,
                const ClockMap& clock);
    void begin(ByteBuffer& out, std::uint32_t part) const;
    // A moment before the base is told as the base.
    BlockReach reach_in_line(std::uint64_t start_ns, std::uint64_t end_ns) const noexcept {
        std::uint64_t start = start_ns - start_ns % 1000, duration = end_ns - end_ns % 1000 - start;
        if (!settings_.epoch_us) [[likely]] {
            const std::uint64_t base = settings_.time_base_us * 1000;
            start = start_ns > base ? start_ns - base : 0;
            duration = end_ns - start_ns;
        }
        BlockReach reach{.first_ns = static_cast<std::int64_t>(start), .last_ns = 0};
        // Users may have given any.
        return __builtin_add_overflow(reach.first_ns, static_cast<std::int64_t>(duration), &reach.last_ns)
                   ? BlockReach::everywhere()
                   : reach;
    }
    void open();
    void name(std::uint32_t tid, const std::string& name);
    // Its number, and its text in `lane_texts_`.
    std::uint32_t lane_of(const Record& record, Track& track, std::uint64_t start_ns, std::uint64_t end_ns);
    [[gnu::noinline]] void add_other_to_index(const Record& record, const BlobTables& tables) noexcept;
    // When all formatted lines are written. 0, or an errno where the marks of the trace cannot be kept: a
    // file without an index is whole.
    int write_index(bool last);
    int block_done();
    int write_oldest();
    int append(std::string_view block, std::size_t plain_bytes, const LineCounts& lines, std::uint32_t lanes,
               TraceStage stage, const TouchedUnits& touched);
    void tell_durable(const TouchedUnits& touched) const;
    std::string_view block() const noexcept { return block_.empty() ? text_.view() : block_; }
    bool part_is_full() const noexcept;
    int next_part();
    // The gathered block behind what a part begins with.
    struct FirstBlock {
        std::string bytes;
        std::size_t head;  // plain bytes
        std::uint64_t line_breaks;
        std::size_t facts;
    };
    FirstBlock first_of_next() const;
    void put_first(FirstBlock first) noexcept;
    void keep_fact(std::uint32_t node, std::string_view name, std::string_view line) noexcept;
    bool spoilt() const noexcept;
    void give_up_part() noexcept;
    void forget_lines(const LineCounts& written) noexcept;
    void count(Kind kind) noexcept { ++lines_[static_cast<std::size_t>(kind)]; }

    const TraceSettings& settings_;
    SpoolHeader& header_;
    LineFormatter formatter_;
    std::unique_ptr<BlockCodec> codec_;
    TraceParts parts_;
    std::uint32_t parent_pid_;
    std::uint64_t first_tick_ = 0;
    std::uint64_t left_out_ = 0;
    std::uint64_t latest_ns_ = 0;
    std::uint64_t unreadable_ = 0;
    ByteBuffer text_;
    BlockReach reach_;  // of the events in it
    PartIndex index_;
    bool is_block_ = false;  // what is gathered, until it is written: it must not grow any more
    std::string block_;      // its bytes, where they are not those of the lines
    std::uint64_t line_breaks_ = 0;
    std::size_t block_head_ = 0;  // plain bytes in front of it that begin a new part
    LineCounts lines_{};          // formatted lines of this part by Kind
    bool opened_ = false;
    TraceStage stage_ = TraceStage::records;
    int last_error_ = 0;
    std::uint32_t lanes_made_ = 0;
    std::unordered_map<std::uint32_t, std::string> lane_texts_;
    std::unordered_map<std::uint32_t, NamedTrack> named_tracks_;
    std::map<std::uint32_t, std::string> names_for_next_part_;
    // Metadata that every part tells, and how many of them are in a part that is written.
    struct Fact {
        std::uint32_t node;
        std::string name, line;
    };
    std::vector<Fact> facts_;
    std::size_t facts_landed_ = 0;
    std::uint64_t spoilt_lines_ = 0;
    bool keeps_to_its_file_ = false;
    bool file_was_spoilt_ = false;
    std::map<UnitHeader*, std::uint32_t> consumed_before_part_;  // with `keeps_to_its_file`
    OpenLines open_lines_;
    TouchedUnits touched_;
    unsigned threads_ahead_ = 0;
    std::unique_ptr<BlocksAhead> ahead_;  // from the first full block on
    GatheredBlock spare_;                 // one that is written: its memory is used again
};

}  // namespace dftrace
