// The flight recorder's row of full units.
#include "dftrace/recording/kept_units.hpp"

#include <algorithm>

namespace dftrace {

namespace {

void raise(std::atomic<std::uint64_t>& value, std::uint64_t least) noexcept {
    std::uint64_t now = value.load(std::memory_order_relaxed);
    while (now < least && !value.compare_exchange_weak(now, least, std::memory_order_release)) continue;
}

}  // namespace

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
        records + from, records + to, [](const Record& record) { return record.kind != Kind::lane_name; }));
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

}  // namespace dftrace
