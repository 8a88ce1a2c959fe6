// Counting what a spool holds and its trace lacks.
#include "dftrace/reading/waiting_events.hpp"

#include <algorithm>
#include <exception>
#include <iterator>

#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

namespace {

const ThreadBlock* block_of(const UnitHeader* unit) {
    return unit->kind == UnitKind::thread ? reinterpret_cast<const ThreadBlock*>(unit) : nullptr;
}

bool holds_records(const UnitHeader* unit) {
    return unit->kind == UnitKind::thread || unit->kind == UnitKind::ring;
}

std::uint32_t records_in(const UnitHeader* unit) {
    return std::min(unit->committed.load(std::memory_order_acquire), unit->capacity);
}

std::uint32_t open_spans(const ThreadBlock& block) {
    return std::min(block.depth.load(std::memory_order_acquire), max_open_spans);
}

std::uint64_t open_in(const ThreadBlock& block) {
    const std::uint32_t slots = std::min(block.task_slots, max_open_task_spans);
    const auto open =
        std::count_if(block.tasks, block.tasks + slots, [](const OpenSpan& span) { return span.live != 0; });
    const auto awaited = std::count_if(std::begin(block.awaited), std::end(block.awaited),
                                       [](const AwaitedSlot& slot) { return slot.holds(); });
    return open_spans(block) + static_cast<std::uint64_t>(open + awaited);
}

std::uint64_t count(SpoolView& spool) {
    std::vector<std::string> damage;
    const std::vector<UnitHeader*> units = spool.units(damage);
    const ClockMap clock = spool.clock();
    const std::uint64_t first_tick = first_wanted_tick(spool, units, spool.settings(), clock);
    const auto wanted = [&](const Record& r) {
        if (!is_event(r.kind)) return false;
        const bool absolute = r.flags & RecordFlag::absolute_time;
        const std::uint64_t ended = absolute || r.kind == Kind::span ? r.end : r.start;
        return !first_tick || ended >= (absolute ? clock.to_ns(first_tick) : first_tick);
    };
    // Not the last mark: it may be of a write that hangs.
    const SpoolHeader& h = spool.header();
    const bool tells_open_spans = h.marks[h.landed.load() % 2].stage == TraceStage::records;
    std::uint64_t events = 0;
    for (UnitHeader* unit : units) {
        if (!holds_records(unit)) continue;
        spool.load(unit);
        const Record* records = records_of(unit);
        const std::uint32_t limit = records_in(unit);
        events += static_cast<std::uint64_t>(
            std::count_if(records + std::min(unit->consumed, limit), records + limit, wanted));
        if (const ThreadBlock* block = block_of(unit); block && tells_open_spans) events += open_in(*block);
        spool.let_go(unit);
    }
    return events;
}

}  // namespace

std::uint64_t first_wanted_tick(SpoolView& spool, const std::vector<UnitHeader*>& units,
                                const TraceSettings& settings, const ClockMap& clock) {
    const std::uint64_t complete_from = spool.header().complete_from.load();
    if (!settings.flight_recorder || !settings.flight_ns) return complete_from;
    const std::uint64_t latest_ns = clock_ns(CLOCK_REALTIME) + clock_margin_ns;
    std::uint64_t last = 0;
    const auto seen = [&](std::uint64_t tick) {
        if (clock.to_ns(tick) <= latest_ns) last = std::max(last, tick);  // else it is damaged
    };
    for (UnitHeader* unit : units) {
        if (!holds_records(unit)) continue;
        spool.load(unit);
        const Record* records = records_of(unit);
        for (std::uint32_t i = 0; i < records_in(unit); ++i)
            if (!(records[i].flags & RecordFlag::absolute_time))
                seen(records[i].kind == Kind::span ? records[i].end : records[i].start);
        if (const ThreadBlock* block = block_of(unit))
            for (std::uint32_t i = 0; i < open_spans(*block); ++i) seen(block->open[i].start);
        spool.let_go(unit);
    }
    return std::max(complete_from, clock.ticks_before(last, settings.flight_ns));
}

std::uint64_t waiting_events(const char* spool, std::size_t bytes) noexcept {
    try {
        SpoolView view(spool, bytes);
        return count(view);
    } catch (const std::exception&) {
        return 0;  // there is no memory: then nothing can be said
    }
}

}  // namespace dftrace
