// One pass after the other over the threads' units.
#include "dftrace/recording/record_flow.hpp"

#include <algorithm>

namespace dftrace {

void UnitsAhead::keep_up(Clock::time_point now) noexcept {
    const std::uint32_t units = spool_.header().units.load(std::memory_order_relaxed);
    const Clock::duration took = std::max(now - grown_at_, Clock::duration(1));
    const std::int64_t grown = units > units_ ? units - units_ : 0;
    const std::int64_t in_reach = grown * Clock::duration(reach) / took;
    const bool rested = in_reach == 0 && took >= rest;
    if (in_reach || rested) {
        units_ = std::max(units_, units);
        grown_at_ = now;
    }
    if (in_reach) {
        // On a busy machine this thread is away for longer than `reach`, and will be so again.
        const std::int64_t wanted = std::min<std::int64_t>(std::max(in_reach, 2 * grown), most);
        wanted_ = std::max(wanted_, static_cast<std::uint32_t>(wanted));
    }
    if (rested && wanted_) {
        wanted_ = 0;
        spool_.give_back_prepared();
    }
    // Where half of the spool is in use, writing what is there is what makes room.
    if (wanted_ && units <= spool_.most_units() / 2) spool_.prepare(wanted_);
}

UnitsAhead::Clock::time_point UnitsAhead::look_again() const noexcept {
    return wanted_ ? grown_at_ + rest : Clock::time_point::max();
}

RecordFlow::RecordFlow(const TraceSettings& settings, Spool& spool, ClockMap& clock, std::uint32_t parent_pid,
                       ThreadRegistry& threads, BlobStore& blobs, Retention& retention)
    : spool_(spool),
      ahead_(spool),
      clock_(clock),
      threads_(threads),
      blobs_(blobs),
      retention_(retention),
      writer_(settings, spool.header(), parent_pid) {
    writer_.blocks().look_at_clocks();
    writer_.keeps_for_parts_by([this](BlobKind kind, std::uint32_t number, std::string_view text) {
        blobs_.keep_for_parts(kind, number, text);
    });
    writer_.blocks().on_durable = [this](UnitHeader* unit, std::uint32_t scan) { unit_durable(unit, scan); };
}

void RecordFlow::follow_clock() {
    if (!clock_.follow()) return;
    SpoolHeader& h = spool_.header();
    const std::uint32_t number = h.clock_segments.load(std::memory_order_relaxed);
    h.clock[clock_slot(number)] = clock_.segments().back();
    h.clock_segments.store(number + 1, std::memory_order_release);
}

int RecordFlow::pass() {
    ahead_.keep_up();
    threads_.take_in_new_sources();
    // First how far each thread has come, then the blobs: a record's names and arguments were
    // stored before the record was, so they are among what is read now.
    for (auto& source : sources()) {
        UnitHeader* unit = source->unit;
        const bool ended = source->block->ended.load(std::memory_order_acquire) != 0;
        while (const std::uint32_t next = unit->next.load(std::memory_order_acquire))
            unit = spool_.unit(next);
        source->limit_unit = unit;
        source->limit = unit->committed.load(std::memory_order_acquire);
        source->over = ended;
    }
    read_blobs();
    follow_clock();
    for (auto& source : sources())
        if (const int error = drain(*source)) {
            // Nothing is over while it cannot be written.
            for (auto& other : sources()) other->over = false;
            return error;
        }
    return 0;
}

int RecordFlow::drain(Source& source) {
    for (;;) {
        // A thread may need the next one sooner than a unit is formatted, and a block compressed.
        ahead_.keep_up();
        UnitHeader* unit = source.unit;
        const bool last = unit == source.limit_unit;
        const std::uint32_t limit = last ? source.limit : unit->capacity;
        if (const int error = writer_.records(unit, source.scan, limit, source.track, tables_, clock_))
            return error;
        if (last) return 0;
        source.unit = spool_.unit(unit->next.load(std::memory_order_acquire));
        source.scan = 0;
        unit->left = 1;
        unit_durable(unit, unit->consumed);
    }
}

void RecordFlow::unit_durable(UnitHeader* unit, std::uint32_t scan) {
    // A thread's first unit also holds its open spans: it stays until the thread is gone.
    if (unit->kind == UnitKind::ring && unit->left && scan == unit->capacity) retention_.give_back(unit);
}

void RecordFlow::read_blobs() {
    blobs_.read_into(tables_);
    // Before they are taken: one that is not noted then would never be applied.
    const std::size_t room = releases_.size() + tables_.releases();
    if (room > releases_.capacity()) releases_.reserve(std::max(room, 2 * releases_.capacity()));
    const std::uint64_t now = retention_.release_moment();
    for (const std::uint32_t id : tables_.take_releases()) releases_.emplace_back(now, id);
}

void RecordFlow::apply_releases() {
    const std::uint64_t settled = retention_.settled_before();
    if (releases_.empty() || releases_.front().first >= settled) return;
    // A span may stay open for long after its node has got other arguments: it is still told with these.
    std::set<std::uint32_t> named;
    if (!snapshots_of_open_spans(named)) return;
    const auto forgotten = std::remove_if(releases_.begin(), releases_.end(), [&](const auto& release) {
        if (release.first >= settled || named.count(release.second)) return false;
        tables_.forget(release.second);
        return true;
    });
    if (forgotten == releases_.end()) return;
    releases_.erase(forgotten, releases_.end());
    blobs_.give_back_spent(tables_);
}

// A snapshot was released after the last span that names it had been opened, so that span is seen here
// if it is still open. From the top down: a span that moves meanwhile, as one below it is taken out,
// moves ahead of the look.
bool RecordFlow::snapshots_of_open_spans(std::set<std::uint32_t>& named) {
    threads_.take_in_new_sources();
    for (const auto& source : sources()) {
        if (source->overwritten.load(std::memory_order_acquire)) continue;
        const ThreadBlock& block = *source->block;
        std::uint32_t depth = block.depth.load(std::memory_order_acquire);
        if (depth > max_open_spans) return false;  // only its own thread sees those
        while (depth > 0) named.insert(block.open[--depth].args);
        for (const OpenSpan& span : block.tasks) named.insert(span.args);
    }
    return true;
}

void RecordFlow::drop_ended_sources() {
    threads_.drop(
        [](const Source& source) {
            // A thread that ended inside a span is told at the end of the run.
            return source.overwritten.load(std::memory_order_acquire) ||
                   (source.over && !holds_open_spans(*source.block));
        },
        [this](const Source& source) {
            writer_.forget_track(source.track);
            if (source.overwritten.load(std::memory_order_acquire)) return;
            if (source.unit != &source.block->unit) retention_.give_back(source.unit);
            retention_.give_back(&source.block->unit);
        });
}

void RecordFlow::write_unfinished() {
    for (auto& source : sources()) {
        ThreadBlock* block = source->block;
        const std::uint32_t depth = block->depth.load();
        for (std::uint32_t i = 0; i < std::min(depth, max_open_spans); ++i)
            writer_.unfinished(block->open[i], source->track, tables_, clock_);
        for (const OpenSpan& span : source->thread->deep)
            writer_.unfinished(span, source->track, tables_, clock_);
        for (std::uint32_t i = 0; i < block->task_slots; ++i)
            if (block->tasks[i].live) writer_.unfinished(block->tasks[i], source->track, tables_, clock_);
    }
}

}  // namespace dftrace
