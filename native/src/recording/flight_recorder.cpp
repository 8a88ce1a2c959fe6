// What a flight recorder keeps, and how it is written when asked for.
#include "dftrace/recording/flight_recorder.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/recording/record_flow.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

UnitHeader* FlightRecorder::take(UnitKind kind, std::uint32_t owner, std::uint32_t units,
                                 std::uint64_t before) {
    UnitHeader* unit = spool_.acquire(kind, owner, units, before);
    if (unit || !spool_.could_give(units)) return unit;
    while (!unit && kept_.let_go_of_oldest()) unit = spool_.acquire(kind, owner, units, before);
    // Of the records that were let go some named snapshots: these can go now, before more records have to.
    if (unit && kind == UnitKind::arguments) wake_(false);
    return unit;
}

void FlightRecorder::thread_over(Thread& thread) noexcept { kept_.add_last(thread.source); }

void FlightRecorder::unit_left(Thread& thread) noexcept {
    if (thread.unit->kind == UnitKind::ring) kept_.add(thread.unit, thread.source);
}

UnitHeader* FlightRecorder::same_unit_again(Thread& thread) noexcept {
    if (!kept_.start_over(thread.unit, *thread.source)) return nullptr;
    thread.refused_at = 0;
    return thread.unit;
}

std::chrono::milliseconds FlightRecorder::interval(std::chrono::milliseconds wanted) const noexcept {
    // There is little to do, but a signal asks for a dump only when somebody looks.
    return std::min(wanted, std::chrono::milliseconds(100));
}

std::uint64_t FlightRecorder::settled_before() noexcept {
    return std::max(spool_.header().complete_from.load(), dumped_before_);
}

std::uint64_t FlightRecorder::oldest_wanted_tick(const RecordFlow& flow) noexcept {
    const std::uint64_t complete = spool_.header().complete_from.load(std::memory_order_acquire);
    if (!memory_ns_) return complete;
    return std::max(complete, flow.clock().ticks_before(tick_source.now(), memory_ns_));
}

std::optional<int> FlightRecorder::turn(RecordFlow& flow, bool, std::string reason) {
    // First: what fails for want of memory is made good by the next turn, which is not asked any more.
    if (!reason.empty()) ask_for_dump(std::move(reason));
    look_after_kept(flow);
    return dump_due_ ? write_kept(flow, true) : 0;
}

int FlightRecorder::end(RecordFlow& flow, const Ending& ending) {
    Ending told = ending;
    told.overwritten = spool_.header().overwritten.load();
    look_after_kept(flow);
    if (ending.how == "exception") ask_for_dump("exception " + ending.error, ending.details);
    TraceWriter& writer = flow.writer();
    if (!dump_due_) {
        told.overwritten += let_go_of_kept(flow);
        return writer.finish(told);
    }
    if (const int error = write_kept(flow, false)) return error;
    told.overwritten = spool_.header().overwritten.load();
    if (const int error = writer.end_records()) return error;
    flow.write_unfinished();
    if (const int error = writer.lost_spans()) return error;
    return writer.finish(told);
}

void FlightRecorder::look_after_kept(RecordFlow& flow) {
    flow.threads().take_in_new_sources();
    flow.read_blobs();
    flow.follow_clock();
    for (auto& source : flow.sources()) source->over = false;  // a dump that failed may have said so
    if (memory_ns_) kept_.let_go_before(oldest_wanted_tick(flow));
    flow.drop_ended_sources();
    flow.apply_releases();
}

void FlightRecorder::ask_for_dump(std::string reason, std::string_view details) {
    // One that could not be written is due still, and told of with this one.
    if (!dump_due_ || dump_noted_)
        dump_reason_ = std::move(reason);
    else
        add_reason(dump_reason_, reason);
    if (!dump_due_ || !details.empty()) dump_details_ = details;
    dump_due_ = true;
    dump_noted_ = false;
}

// What each thread is in just now. What gets a record afterwards has ended, and is told by that.
void FlightRecorder::see_open_spans(RecordFlow& flow) {
    flow.threads().take_in_new_sources();
    std::vector<std::pair<Source*, StackCopy>> stacks;
    const SpoolCopy copy(spool_.descriptor());
    for (auto& source : flow.sources()) {
        const std::optional<UnitFacts> unit = copy.unit(spool_.index_of(&source->block->unit));
        std::optional<StackCopy> stack = unit ? copy.stack(*unit) : std::nullopt;
        if (stack) stacks.emplace_back(source.get(), std::move(*stack));
    }
    flow.read_blobs();  // their names and arguments were stored before
    flow.follow_clock();
    for (auto& [source, stack] : stacks)
        for (const auto* spans : {&stack.open, &stack.tasks})
            for (const OpenSpan& span : *spans)
                flow.writer().open_now(span, source->track, flow.tables(), flow.clock());
}

int FlightRecorder::note_dump(RecordFlow& flow, std::uint64_t before) {
    const ClockMap& clock = flow.clock();
    own_track_.tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
    own_track_.name = "dftrace";
    std::string args = ",\"reason\":";
    append_json_string(args, dump_reason_);
    char seconds[64];
    const std::uint64_t oldest = std::max(dump_from_, clock.segments().front().tick);
    std::snprintf(seconds, sizeof seconds, ",\"seconds\":%.3f",
                  static_cast<double>(clock.to_ns(before) - clock.to_ns(oldest)) / 1e9);
    return flow.writer().note(R"("name":"dump","cat":"instant")", args + seconds + dump_details_, own_track_,
                              flow.threads().new_ids(1), clock.to_ns(before));
}

// `run_goes_on`: what is open is not unfinished yet, and the next write may tell otherwise of it.
int FlightRecorder::write_kept(RecordFlow& flow, bool run_goes_on) {
    TraceWriter& writer = flow.writer();
    kept_.hold();
    flow.drop_ended_sources();  // whose last units were let go in the last moment
    const std::uint64_t before = tick_source.now();
    // What was there when the dump was first tried is not let go of until it is written.
    if (!dump_from_) dump_from_ = oldest_wanted_tick(flow);
    writer.leave_out_before(dump_from_);
    if (run_goes_on) {
        if (const int error = writer.begin_dump()) return error;
        try {
            see_open_spans(flow);
        } catch (const std::system_error& error) {
            // The program has closed the spool's file. All that is recorded is still in memory.
            append_json_string(dump_details_ = ",\"open_spans\":", std::string("not seen: ") + error.what());
        }
    }
    if (const int error = flow.pass()) return error;
    if (run_goes_on)
        if (const int error = writer.lost_spans()) return error;
    if (!dump_noted_) {
        if (const int error = note_dump(flow, before)) return error;
        dump_noted_ = true;
    }
    if (const int error = writer.flush()) return error;
    if (run_goes_on)
        if (const int error = writer.end_dump()) return error;
    dump_due_ = false;
    dump_from_ = 0;
    dumped_before_ = before;
    spool_.header().overwritten.fetch_add(writer.take_left_out(), std::memory_order_relaxed);
    // Before any unit is let go again: of these sources none must be found then.
    flow.drop_ended_sources();
    kept_.resume();
    tell_of_room();
    std::string reason;
    append_json_string(reason, dump_reason_);
    std::fprintf(stderr, "dftrace: dumped to %s (%s)\n", writer.path().c_str(), reason.c_str());
    return 0;
}

std::uint64_t FlightRecorder::let_go_of_kept(RecordFlow& flow) {
    std::uint64_t events = 0;
    for (auto& source : flow.sources()) {
        UnitHeader* unit = source->unit;
        std::uint32_t scan = source->scan;
        for (;;) {
            const std::uint32_t limit = unit->committed.load(std::memory_order_acquire);
            events += events_in(unit, scan, limit);
            for (; scan < limit; ++scan)
                events -= flow.writer().ended_since(records_of(unit)[scan], source->track, flow.tables(),
                                                    flow.clock());
            const std::uint32_t next = unit->next.load(std::memory_order_acquire);
            if (!next) break;
            unit = spool_.unit(next);
            scan = 0;
        }
    }
    return events;
}

}  // namespace dftrace
