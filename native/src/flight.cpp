// The session's side of the flight recorder: what is kept, and how it is written when asked for.
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "dftrace/session.hpp"

namespace dftrace {

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

int Session::write_kept() {
    kept_.hold();
    drop_ended_sources();  // whose last units were let go in the last moment
    const std::uint64_t before = tick_source.now();
    // What was there when the dump was first tried is not let go of until it is written.
    if (!dump_from_) dump_from_ = oldest_wanted_tick();
    writer_.leave_out_before(dump_from_);
    if (!pass()) return writer_.last_error();
    if (!dump_reason_.empty()) {
        own_track_.tid = static_cast<std::uint32_t>(syscall(SYS_gettid));
        own_track_.name = "dftrace";
        std::string args = ",\"reason\":";
        append_json_string(args, dump_reason_);
        char seconds[64];
        const std::uint64_t oldest = std::max(dump_from_, clock_.segments().front().tick);
        std::snprintf(seconds, sizeof seconds, ",\"seconds\":%.3f",
                      static_cast<double>(clock_.to_ns(before) - clock_.to_ns(oldest)) / 1e9);
        if (const int error = writer_.note(R"("name":"dump","cat":"instant")", args + seconds, own_track_,
                                           new_ids(1), clock_.to_ns(before)))
            return error;
        dump_reason_.clear();
    }
    if (const int error = writer_.flush()) return error;
    dump_due_ = false;
    dump_from_ = 0;
    dumped_before_ = before;
    header().overwritten.fetch_add(writer_.take_left_out(), std::memory_order_relaxed);
    // Before any unit is let go again: of these sources none must be found then.
    drop_ended_sources();
    kept_.resume();
    units_freed_.fetch_add(1, std::memory_order_relaxed);  // threads that were refused may ask again
    return 0;
}

std::uint64_t Session::events_kept() {
    std::uint64_t events = 0;
    for (auto& source : sources_) {
        UnitHeader* unit = source->unit;
        std::uint32_t scan = source->scan;
        for (;;) {
            events += events_in(unit, scan, unit->committed.load(std::memory_order_acquire));
            const std::uint32_t next = unit->next.load(std::memory_order_acquire);
            if (!next) break;
            unit = spool_.unit(next);
            scan = 0;
        }
    }
    return events;
}

}  // namespace dftrace
