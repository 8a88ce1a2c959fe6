// The session's side of the flight recorder: what is kept, and how it is written when asked for.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <system_error>
#include <utility>

#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/recording/session.hpp"

namespace dftrace {

void add_reason(std::string& reasons, std::string_view more) {
    constexpr std::string_view between = "; ";
    constexpr std::size_t most = 4096;  // the disk may be full for long, and one after another ask
    for (std::size_t at = reasons.find(more); at != reasons.npos; at = reasons.find(more, at + 1)) {
        const std::string_view before = std::string_view(reasons).substr(0, at);
        const std::string_view after = std::string_view(reasons).substr(at + more.size());
        if ((before.empty() || before.ends_with(between)) && (after.empty() || after.starts_with(between)))
            return;
    }
    if (!reasons.empty() && reasons.size() + more.size() > most) return;
    reasons.append(reasons.empty() ? "" : between).append(more);
}

UnitHeader* Session::take_unit(UnitKind kind, std::uint32_t owner, std::uint32_t units) {
    UnitHeader* unit = spool_.acquire(kind, owner, units);
    if (unit || !settings_.flight_recorder || !spool_.could_give(units)) return unit;
    while (!unit && kept_.let_go_of_oldest()) unit = spool_.acquire(kind, owner, units);
    // Of the records that were let go some named snapshots: these can go now, before more records have to.
    if (unit && kind == UnitKind::arguments) wake();
    return unit;
}

std::uint64_t Session::oldest_wanted_tick() noexcept {
    const std::uint64_t complete = header().complete_from.load(std::memory_order_acquire);
    if (!settings_.flight_ns) return complete;
    return std::max(complete, clock_.ticks_before(tick_source.now(), settings_.flight_ns));
}

void Session::look_after_kept() {
    take_in_new_sources();
    read_blobs();
    follow_clock();
    for (auto& source : sources_) source->over = false;  // a dump that failed may have said so
    if (settings_.flight_ns) kept_.let_go_before(oldest_wanted_tick());
    drop_ended_sources();
    apply_releases();
}

void Session::ask_for_dump(std::string_view reason, std::string_view details) {
    // One that could not be written is due still, and told of with this one.
    if (!dump_due_ || dump_noted_) dump_reason_.clear();
    add_reason(dump_reason_, reason);
    if (!dump_due_ || !details.empty()) dump_details_ = details;
    dump_due_ = true;
    dump_noted_ = false;
}

// What each thread is in just now. What gets a record afterwards has ended, and is told by that.
void Session::see_open_spans() {
    take_in_new_sources();
    std::vector<std::pair<Source*, StackCopy>> stacks;
    const SpoolCopy copy(spool_.descriptor());
    for (auto& source : sources_) {
        const std::optional<UnitFacts> unit = copy.unit(spool_.index_of(&source->block->unit));
        std::optional<StackCopy> stack = unit ? copy.stack(*unit) : std::nullopt;
        if (stack) stacks.emplace_back(source.get(), std::move(*stack));
    }
    read_blobs();  // their names and arguments were stored before
    follow_clock();
    for (auto& [source, stack] : stacks)
        for (const auto* spans : {&stack.open, &stack.tasks})
            for (const OpenSpan& span : *spans) writer_.open_now(span, source->track, tables_, clock_);
}

// `run_goes_on`: what is open is not unfinished yet, and the next write may tell otherwise of it.
int Session::write_kept(bool run_goes_on) {
    kept_.hold();
    drop_ended_sources();  // whose last units were let go in the last moment
    const std::uint64_t before = tick_source.now();
    // What was there when the dump was first tried is not let go of until it is written.
    if (!dump_from_) dump_from_ = oldest_wanted_tick();
    writer_.leave_out_before(dump_from_);
    if (run_goes_on) {
        if (const int error = writer_.begin_dump()) return error;
        try {
            see_open_spans();
        } catch (const std::system_error& error) {
            // The program has closed the spool's file. All that is recorded is still in memory.
            append_json_string(dump_details_ = ",\"open_spans\":", std::string("not seen: ") + error.what());
        }
    }
    if (!pass()) return writer_.last_error();
    if (run_goes_on)
        if (const int error = writer_.lost_spans()) return error;
    if (!dump_noted_) {
        own_track_.tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
        own_track_.name = "dftrace";
        std::string args = ",\"reason\":";
        append_json_string(args, dump_reason_);
        char seconds[64];
        const std::uint64_t oldest = std::max(dump_from_, clock_.segments().front().tick);
        std::snprintf(seconds, sizeof seconds, ",\"seconds\":%.3f",
                      static_cast<double>(clock_.to_ns(before) - clock_.to_ns(oldest)) / 1e9);
        if (const int error = writer_.note(R"("name":"dump","cat":"instant")", args + seconds + dump_details_,
                                           own_track_, new_ids(1), clock_.to_ns(before)))
            return error;
        dump_noted_ = true;
    }
    if (const int error = writer_.flush()) return error;
    if (run_goes_on)
        if (const int error = writer_.end_dump()) return error;
    dump_due_ = false;
    dump_from_ = 0;
    dumped_before_ = before;
    header().overwritten.fetch_add(writer_.take_left_out(), std::memory_order_relaxed);
    // Before any unit is let go again: of these sources none must be found then.
    drop_ended_sources();
    kept_.resume();
    units_freed_.fetch_add(1, std::memory_order_relaxed);  // threads that were refused may ask again
    std::string reason;
    append_json_string(reason, dump_reason_);
    std::fprintf(stderr, "dftrace: dumped to %s (%s)\n", writer_.path().c_str(), reason.c_str());
    return 0;
}

std::uint64_t Session::let_go_of_kept() {
    std::uint64_t events = 0;
    for (auto& source : sources_) {
        UnitHeader* unit = source->unit;
        std::uint32_t scan = source->scan;
        for (;;) {
            const std::uint32_t limit = unit->committed.load(std::memory_order_acquire);
            events += events_in(unit, scan, limit);
            for (; scan < limit; ++scan)
                events -= writer_.ended_since(records_of(unit)[scan], source->track, tables_, clock_);
            const std::uint32_t next = unit->next.load(std::memory_order_acquire);
            if (!next) break;
            unit = spool_.unit(next);
            scan = 0;
        }
    }
    return events;
}

}  // namespace dftrace
