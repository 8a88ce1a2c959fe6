// A session from its beginning to its end.
#include "dftrace/recording/session.hpp"

#include <numeric>

#include "dftrace/reading/waiting_events.hpp"
#include "dftrace/spool/new_spool.hpp"

namespace dftrace {

Session::Session(const TraceSettings& settings, std::uint64_t generation, std::uint32_t parent_pid,
                 std::uint64_t epoch_offset_ns)
    : settings_(settings),
      generation_(generation),
      clock_(ClockMap::anchored_now(epoch_offset_ns)),
      spool_(new_spool(settings_, clock_, parent_pid)),
      retention_(make_retention(settings_, spool_, [this](bool write_out) { drain_.wake(write_out); })),
      threads_(this, generation),
      blobs_(*retention_, spool_.header()),
      flow_(settings_, spool_, clock_, parent_pid, threads_, blobs_, *retention_),
      drain_(settings_, spool_, flow_, *retention_) {
    drain_.start();
    unless_begun_.begun = true;
    // The marker tells where the spool is. A file system that is slow to take it must not hold up the
    // training for long.
    drain_.wait_for_marker(std::chrono::milliseconds(50));
}

Session::~Session() = default;

UnitHeader* Session::next_unit(Thread& thread) noexcept {
    UnitHeader* unit = retention_->next_unit(thread);
    if (!unit && settings_.wait_on_overflow) {
        header().waits.fetch_add(1, std::memory_order_relaxed);
        while (!unit && drain_.wait_for_room()) {
            thread.refused_at = 0;
            unit = retention_->next_unit(thread);
        }
    }
    if (!unit) header().dropped.fetch_add(1, std::memory_order_relaxed);
    return unit;
}

Outcome Session::finish(const Ending& ending) {
    const bool ended = drain_.finish(ending);
    Outcome outcome;
    outcome.spool_bytes = spool_bytes_used();
    outcome.losses = header().losses();
    if (const int refused = spool_.refused()) outcome.spool_refusal = reason_of(refused).text;
    // A write that hangs has a mark already, and may never land.
    const WriteMark& mark = header().marks[header().landed.load() % 2];
    outcome.events = std::accumulate(mark.lines.begin(), mark.lines.end(), std::uint64_t{0}) +
                     std::accumulate(mark.earlier_lines.begin(), mark.earlier_lines.end(), std::uint64_t{0});
    if (!ended) {
        outcome.abandoned = true;
        outcome.lost_lines = waiting_events(spool_.memory(), spool_.used_bytes());
        outcome.error = "the file system does not answer";
        outcome.trace_path = header().trace_paths[header().last_mark().part % 2].get();
        outcome.spool_path = spool_.path();
        return outcome;
    }
    const TraceWriter& writer = flow_.writer();
    outcome.trace_path = writer.path();
    outcome.events = writer.lines_written();
    if (const int error = drain_.error()) {
        // The spool keeps what the file could not take; a later reader finishes the trace.
        outcome.error = reason_of(error).text;
        outcome.lost_lines = waiting_events(spool_.memory(), spool_.used_bytes());
        outcome.spool_path = spool_.place();
        outcome.marked = drain_.marked();
    }
    outcome.spoilt_lines = writer.spoilt_lines();
    outcome.lost_lines += outcome.spoilt_lines;
    if (outcome.error.empty() && outcome.spoilt_lines)
        outcome.error = "a file of it was removed or cut while it was written";
    return outcome;
}

}  // namespace dftrace
