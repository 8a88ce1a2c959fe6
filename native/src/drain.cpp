// The drain thread: from the threads' units to the trace file, never needing the interpreter.
#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#include "dftrace/session.hpp"

namespace dftrace {

void Session::drain_loop() {
    pthread_setname_np(pthread_self(), "dftrace-drain");
    const auto interval = std::chrono::milliseconds(settings_.flush_interval_ms);
    auto next_write = std::chrono::steady_clock::now() + interval;
    std::unique_lock lock(wake_mutex_);
    while (!stop_) {
        // Not "for an interval": what a full unit wakes this thread for must not put the write off.
        wake_.wait_until(lock, next_write, [this] { return stop_ || woken_; });
        const bool write_out = std::exchange(write_out_, false);
        woken_ = false;
        lock.unlock();
        const auto now = std::chrono::steady_clock::now();
        bool well = false;
        int error = 0;
        try {
            std::lock_guard looking(pass_mutex_);
            well = pass();
            if (well && (write_out || now >= next_write)) well = writer_.flush() == 0;
            if (well && !writer_.anything_to_write()) {
                drop_ended_sources();
                apply_releases();
            }
            error = well ? 0 : writer_.last_error();
        } catch (const std::bad_alloc&) {
            // The records stay in the spool; there may be memory the next time. An exception that
            // left this thread would end the training.
            well = false;
            error = ENOMEM;
        }
        if (now >= next_write) next_write = now + interval;
        writer_failing_.store(!well, std::memory_order_relaxed);
        drain_cpu_us_.store(clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1000, std::memory_order_relaxed);
        lock.lock();
        write_error_ = error;
        ++passes_;
        passed_.notify_all();
    }
}

bool Session::pass() {
    {
        std::lock_guard lock(threads_mutex_);
        for (auto& source : new_sources_) sources_.push_back(std::move(source));
        new_sources_.clear();
    }
    // First how far each thread has come, then the blobs: a record's names and arguments were
    // stored before the record was, so they are among what is read now.
    for (auto& source : sources_) {
        UnitHeader* unit = source->unit;
        const bool ended = source->block->ended.load(std::memory_order_acquire) != 0;
        while (const std::uint32_t next = unit->next.load(std::memory_order_acquire))
            unit = spool_.unit(next);
        source->limit_unit = unit;
        source->limit = unit->committed.load(std::memory_order_acquire);
        source->over = ended;
    }
    read_blobs();
    if (clock_.follow()) {
        SpoolHeader& h = header();
        const std::uint32_t number = h.clock_segments.load(std::memory_order_relaxed);
        h.clock[number % max_clock_segments] = clock_.segments().back();
        h.clock_segments.store(number + 1, std::memory_order_release);
    }
    for (auto& source : sources_)
        if (!drain(*source)) {
            // Nothing is over while it cannot be written.
            for (auto& other : sources_) other->over = false;
            return false;
        }
    return true;
}

bool Session::drain(Source& source) {
    for (;;) {
        UnitHeader* unit = source.unit;
        const bool last = unit == source.limit_unit;
        const std::uint32_t limit = last ? source.limit : unit->capacity;
        if (!writer_.records(unit, source.scan, limit, source.track, tables_, clock_)) return false;
        if (last) return true;
        source.unit = spool_.unit(unit->next.load(std::memory_order_acquire));
        source.scan = 0;
        unit->left = 1;
        unit_durable(unit, unit->consumed);
    }
}

void Session::unit_durable(UnitHeader* unit, std::uint32_t scan) {
    // A thread's first unit also holds its open spans: it stays until the thread is gone.
    if (unit->kind == UnitKind::ring && unit->left && scan == unit->capacity) free_unit(unit);
}

void Session::free_unit(UnitHeader* unit) {
    spool_.release(unit);
    units_freed_.fetch_add(1, std::memory_order_relaxed);
}

void Session::read_blobs() {
    std::vector<UnitHeader*> units;
    {
        std::lock_guard lock(blob_mutex_);
        define_names_locked(names_wanted_);
        units = name_units_;
        units.insert(units.end(), argument_units_.begin(), argument_units_.end());
    }
    for (UnitHeader* unit : units) tables_.read(unit);
    for (const std::uint32_t id : tables_.take_releases()) releases_.emplace_back(passes_, id);
}

void Session::apply_releases() {
    // A record that names a snapshot was stored before the snapshot's release; one whole pass
    // after the release was seen, all such records are in the file.
    std::size_t done = 0;
    while (done < releases_.size() && releases_[done].first + 1 < passes_)
        tables_.forget(releases_[done++].second);
    releases_.erase(releases_.begin(), releases_.begin() + static_cast<std::ptrdiff_t>(done));
    if (!done) return;
    std::lock_guard lock(blob_mutex_);
    if (argument_units_.empty()) return;
    // The last unit is still being filled.
    const auto tail = argument_units_.end() - 1;
    const auto kept = std::stable_partition(argument_units_.begin(), tail,
                                            [this](UnitHeader* unit) { return !tables_.spent(unit); });
    for (auto it = kept; it != tail; ++it) {
        tables_.drop_unit(*it);
        free_unit(*it);
    }
    argument_units_.erase(kept, tail);
}

void Session::drop_ended_sources() {
    const auto gone = [this](const std::unique_ptr<Source>& source) {
        if (!source->over) return false;
        ThreadBlock* block = source->block;
        const std::uint32_t depth = block->depth.load();
        bool holds_open = depth > 0;
        for (std::uint32_t i = 0; i < block->task_slots; ++i) holds_open |= block->tasks[i].live != 0;
        // A thread that ended inside a span is told at the end of the run.
        if (holds_open) return false;
        std::lock_guard lock(threads_mutex_);
        std::erase_if(threads_, [&](const auto& thread) { return thread.get() == source->thread; });
        if (source->unit != &block->unit) free_unit(source->unit);
        free_unit(&block->unit);
        return true;
    };
    if (std::any_of(sources_.begin(), sources_.end(), [](const auto& s) { return s->over; }))
        std::erase_if(sources_, gone);
}

}  // namespace dftrace
