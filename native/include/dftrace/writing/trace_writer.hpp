// From records to the trace file: what a record becomes, and which are told at all. `TraceBlocks` has the
// lines written, and the spool marked so that a block is never lost and never written twice, whenever the
// process dies; `Tracks` knows where they lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/tables.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/text/byte_buffer.hpp"
#include "dftrace/writing/line_formatter.hpp"
#include "dftrace/writing/open_lines.hpp"
#include "dftrace/writing/trace_blocks.hpp"
#include "dftrace/writing/tracks.hpp"

namespace dftrace {

// Wall clocks are set now and then: nearer than this to the present is not the future.
constexpr std::uint64_t clock_margin_ns = 3'600'000'000'000;

class TraceWriter {
  public:
    TraceWriter(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid);

    // Formats records [unit->scan, limit) of `unit`; `scan` moves on. Stops early where a full block cannot
    // be written: 0 or the errno.
    int records(UnitHeader* unit, std::uint32_t& scan, std::uint32_t limit, Track& track,
                const BlobTables& tables, const ClockMap& clock);
    // Records that ended before this tick are left out.
    void leave_out_before(std::uint64_t tick) noexcept { first_tick_ = tick; }
    // How many were since the last call.
    std::uint64_t take_left_out() noexcept { return std::exchange(left_out_, 0); }
    // From here on no record is believed that is later than `now_ns`, or older than the clock's
    // beginning, by a margin; it is counted instead.
    void doubt_after(std::uint64_t now_ns) noexcept { latest_ns_ = now_ns + clock_margin_ns; }
    std::uint64_t unreadable() const noexcept { return unreadable_; }
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
    int end_dump() { return blocks_.put_tail(open_lines_.tell_seen()); }
    // At the end of a run whose last records nobody asked for: true if a dump told of it as an open span.
    // `finish` tells it as it is.
    bool ended_since(const Record& record, Track& track, const BlobTables& tables, const ClockMap& clock);
    // An instant of the recorder's own; `args` are JSON members, each with a comma in front. 0, or the
    // errno for which an earlier block has to go first.
    int note(std::string_view name_json, std::string_view args, Track& track, std::uint64_t id,
             std::uint64_t ns);
    // The thread is over, and its last record was formatted.
    void forget_track(const Track& track);
    // Writes what is gathered. 0, or the errno of the failure: the block is kept for the next try.
    int flush() { return blocks_.flush(); }
    int finish(const Ending& ending) { return blocks_.finish(ending, open_lines_); }
    // Continues a trace as the spool's marks say it stands; 0 or an errno.
    int resume();
    // What earlier parts told, for those that are begun from here on.
    void know(const BlobTables& tables);
    // What every part tells is given to this as well, when it is told first.
    using KeepForParts = std::function<void(BlobKind, std::uint32_t, std::string_view)>;
    void keeps_for_parts_by(KeepForParts keep) { keep_for_parts_ = std::move(keep); }

    TraceBlocks& blocks() noexcept { return blocks_; }
    const TraceBlocks& blocks() const noexcept { return blocks_; }
    TraceParts& parts() noexcept { return blocks_.parts(); }
    const std::string& path() const noexcept { return blocks_.parts().path(); }

  private:
    bool plausible(const Record& record, const ClockMap& clock) const;
    void one(const Record& record, Track& track, const BlobTables& tables, const ClockMap& clock);
    bool profile(const Record& record, const BlobTables& tables, const ClockMap& clock);
    // On which track a line stands, and from when to when it reaches, as it says itself; where it has no end,
    // its start.
    struct Placed {
        std::uint32_t tid = 0;
        BlockReach reach;
    };
    Placed format(ByteBuffer& out, const Record& record, Track& track, const BlobTables& tables,
                  const ClockMap& clock);
    std::string line_of(const Record& record, Track& track, const BlobTables& tables, const ClockMap& clock);
    void name_lane(const Record& record, const Track& track, const BlobTables& tables);
    BlockReach reach_in_line(std::uint64_t start_ns, std::uint64_t end_ns) const noexcept;
    void introduce(Track& track);
    void add_other_to_index(const Record& record, const BlobTables& tables) noexcept;

    const TraceSettings& settings_;
    const SpoolHeader& header_;
    LineFormatter formatter_;
    Tracks tracks_;
    TraceBlocks blocks_;
    OpenLines open_lines_;
    KeepForParts keep_for_parts_;
    std::uint64_t first_tick_ = 0;
    std::uint64_t left_out_ = 0;
    std::uint64_t latest_ns_ = 0;
    std::uint64_t unreadable_ = 0;
};

}  // namespace dftrace
