// What a flight recorder keeps, and how it is written when asked for.
#include "dftrace/recording/flight_recorder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/recording/record_flow.hpp"
#include "dftrace/recording/thread_registry.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

std::uint64_t last_tick_of(UnitHeader* unit) noexcept {
    const Record* records = records_of(unit);
    for (std::uint32_t i = unit->committed.load(std::memory_order_acquire); i-- > 0;)
        if (!(records[i].flags & RecordFlag::absolute_time) && records[i].kind != Kind::lane_name)
            return records[i].kind == Kind::span ? records[i].end : records[i].start;
    return 0;
}

std::uint64_t events_in(UnitHeader* unit, std::uint32_t from, std::uint32_t to) noexcept {
    if (from >= to) return 0;
    const Record* records = records_of(unit);
    return static_cast<std::uint64_t>(std::count_if(
        records + from, records + to, [](const Record& record) { return is_event(record.kind); }));
}

namespace {

// The full units that a flight recorder keeps, oldest first, until they are written or used again.
class KeptUnits {
  public:
    explicit KeptUnits(Spool& spool) : spool_(spool), room_(spool.most_units()), kept_(new Kept[room_]) {}

    // A unit whose thread has gone on to the next one.
    void add(UnitHeader* unit, Source* source) noexcept;
    // The thread ends here, and its last units are as any that are full.
    void add_last(Source* source) noexcept;
    // Lets go of the oldest unit, whose records are lost; false when there is none to let go.
    bool let_go_of_oldest();
    // Lets go of all units whose records ended before `tick`.
    void let_go_before(std::uint64_t tick);
    // Empties the unit that its thread has filled, for want of another; false when it has to stay.
    bool start_over(UnitHeader* unit, Source& source);

    // While a dump reads units, none is let go.
    void hold();
    void resume();

  private:
    struct Kept {
        UnitHeader* unit;
        std::uint64_t sequence;
        Source* source;
    };
    // False when a dump has written it; its source may be gone then.
    bool there(const Kept& kept) noexcept { return spool_.holds(kept.unit, kept.sequence); }
    bool let_go_of_oldest_locked();
    // Counts what of the unit is not in the trace as lost, and everything up to then as incomplete.
    void lose(UnitHeader* unit, Source& source);
    void add_locked(UnitHeader* unit, Source* source) noexcept;

    Kept& kept(std::size_t place) noexcept { return kept_[(oldest_ + place) % room_]; }
    void forget_written() noexcept;

    Spool& spool_;
    const std::size_t room_;
    std::mutex mutex_;  // guards all that follows
    // A ring with room for all units from the beginning on: one that could not be noted would be lost without
    // being counted. Its memory is touched as it fills.
    const std::unique_ptr<Kept[]> kept_;
    std::size_t oldest_ = 0;
    std::size_t count_ = 0;
    bool held_ = false;
};

void raise(std::atomic<std::uint64_t>& value, std::uint64_t least) noexcept {
    std::uint64_t now = value.load(std::memory_order_relaxed);
    while (now < least && !value.compare_exchange_weak(now, least, std::memory_order_release)) continue;
}

void KeptUnits::add(UnitHeader* unit, Source* source) noexcept {
    std::lock_guard lock(mutex_);
    add_locked(unit, source);
}

// Once the lock is given back the source may go at any time.
void KeptUnits::add_last(Source* source) noexcept {
    std::lock_guard lock(mutex_);
    UnitHeader* last = source->thread->unit;
    UnitHeader* first = &source->block->unit;
    if (last != first) add_locked(last, source);
    add_locked(first, source);
    source->block->ended.store(1, std::memory_order_release);
}

void KeptUnits::add_locked(UnitHeader* unit, Source* source) noexcept {
    // A unit that a dump wrote may have been filled again, and stand here twice.
    if (count_ == room_) forget_written();
    kept(count_++) = {unit, unit->sequence, source};
}

bool KeptUnits::let_go_of_oldest() {
    std::lock_guard lock(mutex_);
    return let_go_of_oldest_locked();
}

void KeptUnits::let_go_before(std::uint64_t tick) {
    std::lock_guard lock(mutex_);
    while (!held_ && count_) {
        const Kept& oldest = kept(0);
        if (there(oldest) && last_tick_of(oldest.unit) >= tick) return;
        if (!let_go_of_oldest_locked()) return;
    }
}

void KeptUnits::lose(UnitHeader* unit, Source& source) {
    UnitHeader* first = &source.block->unit;
    const auto events_left = [&source](UnitHeader* of) {
        return events_in(of, source.unit == of ? source.scan : 0,
                         of->committed.load(std::memory_order_acquire));
    };
    std::uint64_t lost = events_left(unit);
    // What stands beside the thread's open spans is older than all of its other units.
    if (source.unit == first && unit != first) lost += events_left(first);
    if (lost) {
        raise(spool_.header().complete_from, last_tick_of(unit) + 1);
        spool_.header().overwritten.fetch_add(lost, std::memory_order_relaxed);
    }
    if (source.unit == first)
        source.scan = first->consumed = first->committed.load(std::memory_order_acquire);
}

bool KeptUnits::let_go_of_oldest_locked() {
    while (!held_ && count_) {
        const Kept oldest = kept(0);
        oldest_ = (oldest_ + 1) % room_;
        --count_;
        if (!there(oldest)) continue;
        UnitHeader* unit = oldest.unit;
        Source& source = *oldest.source;
        UnitHeader* first = &source.block->unit;
        lose(unit, source);
        if (unit == first) {
            if (holds_open_spans(*source.block)) continue;  // which are told at the end of the run
            source.overwritten.store(true, std::memory_order_release);
            spool_.release(first);
            return true;
        }
        const std::uint32_t next = unit->next.load(std::memory_order_acquire);
        first->next.store(next, std::memory_order_release);
        source.unit = next ? spool_.unit(next) : first;
        source.scan = next ? 0 : first->committed.load(std::memory_order_acquire);
        spool_.release(unit);
        return true;
    }
    return false;
}

bool KeptUnits::start_over(UnitHeader* unit, Source& source) {
    std::lock_guard lock(mutex_);
    if (held_) return false;
    lose(unit, source);
    unit->start_over();
    if (source.unit == unit) source.scan = 0;
    return true;
}

void KeptUnits::hold() {
    std::lock_guard lock(mutex_);
    held_ = true;
}

void KeptUnits::resume() {
    std::lock_guard lock(mutex_);
    held_ = false;
    forget_written();
}

void KeptUnits::forget_written() noexcept {
    std::size_t left = 0;
    for (std::size_t place = 0; place < count_; ++place)
        if (there(kept(place))) kept(left++) = kept(place);
    count_ = left;
}

// The last records stay in the spool, as many as fit or as are young enough, and are written when asked for.
class FlightRecorder final : public Retention {
  public:
    // `memory_ns`: what is older is let go; 0: all that fits is kept.
    FlightRecorder(Spool& spool, Wake wake, std::uint64_t memory_ns)
        : Retention(spool, std::move(wake)), kept_(spool), memory_ns_(memory_ns) {}

    // If need be, a unit of the oldest records that are kept.
    UnitHeader* take(UnitKind kind, std::uint32_t owner, std::uint32_t units = 1,
                     std::uint64_t before = 0) override;
    void thread_over(Thread& thread) noexcept override;
    std::chrono::milliseconds interval(std::chrono::milliseconds wanted) const noexcept override;
    std::optional<int> turn(RecordFlow& flow, bool write_out, DumpRequest dump) override;
    int end(RecordFlow& flow, const Ending& ending) override;
    std::uint64_t release_moment() const noexcept override { return tick_source.now(); }
    // Records that name a snapshot ended before its release was seen: they are let go, or in the file.
    std::uint64_t settled_before() noexcept override;

  private:
    UnitHeader* same_unit_again(Thread& thread) noexcept override;
    void unit_left(Thread& thread) noexcept override;

    // Looks after what is kept; writes nothing.
    void look_after_kept(RecordFlow& flow);
    void ask_for_dump(std::string reason, std::string_view details = {});
    void see_open_spans(RecordFlow& flow);
    int tell_of_dump(RecordFlow& flow, std::uint64_t before);
    int write_kept(RecordFlow& flow, bool run_goes_on);
    // At the end: nobody asked for these. How many they are, without those that a dump told of.
    std::uint64_t let_go_of_kept(RecordFlow& flow);
    std::uint64_t oldest_wanted_tick(const RecordFlow& flow) noexcept;

    KeptUnits kept_;
    const std::uint64_t memory_ns_;
    // All of these are the drain thread's own.
    bool dump_due_ = false;
    std::uint64_t dump_from_ = 0;      // tick from which on the dump that is due writes
    std::uint64_t dumped_before_ = 0;  // tick before which every record is in the trace or was let go
    std::string dump_reason_;          // of the last dump that was asked for
    std::string dump_details_;         // JSON members about it
    std::string dump_stacks_;          // where threads stood when it was asked for
    bool dump_noted_ = false;          // its instant is formatted
    Track own_track_;                  // what the recorder says of itself
};

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

std::optional<int> FlightRecorder::turn(RecordFlow& flow, bool, DumpRequest dump) {
    // First: what fails for want of memory is made good by the next turn, which is not asked any more.
    if (!dump.reason.empty()) {
        ask_for_dump(std::move(dump.reason));
        dump_stacks_ = std::move(dump.stacks);
    }
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

int FlightRecorder::tell_of_dump(RecordFlow& flow, std::uint64_t before) {
    const ClockMap& clock = flow.clock();
    char seconds[64];
    const std::uint64_t oldest = std::max(dump_from_, clock.segments().front().tick);
    std::snprintf(seconds, sizeof seconds, ",\"seconds\":%.3f",
                  static_cast<double>(clock.to_ns(before) - clock.to_ns(oldest)) / 1e9);
    return note_dump(flow, own_track_, dump_reason_, seconds + dump_details_ + dump_stacks_, before);
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
        if (const int error = tell_of_dump(flow, before)) return error;
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

}  // namespace

std::unique_ptr<Retention> make_flight_recorder(Spool& spool, Retention::Wake wake, std::uint64_t memory_ns) {
    return std::make_unique<FlightRecorder>(spool, std::move(wake), memory_ns);
}

}  // namespace dftrace
