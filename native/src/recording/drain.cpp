// The drain thread: from the threads' units to the trace file, never needing the interpreter.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <set>
#include <utility>

#include "dftrace/recording/dump_signal.hpp"
#include "dftrace/recording/session.hpp"

namespace dftrace {

std::chrono::milliseconds Session::interval() const noexcept {
    // A flight recorder has little to do, but a signal asks it for a dump only when it looks.
    const std::uint32_t most = settings_.flight_recorder ? 100 : UINT32_MAX;
    return std::chrono::milliseconds(std::min(settings_.flush_interval_ms, most));
}

void Session::drain_loop() {
    // The first exception of a thread takes memory, and would end the process where there is none.
    try {
        throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
    pthread_setname_np(pthread_self(), "dftrace-drain");
    marker_.write(settings_, spool_.path());
    auto next_write = std::chrono::steady_clock::now() + interval();
    std::unique_lock lock(wake_mutex_);
    marker_tried_ = true;
    passed_.notify_all();
    while (!stop_) {
        // Not "for an interval": what a full unit wakes this thread for must not put the write off.
        wake_.wait_until(lock, next_write, [this] { return stop_ || woken_; });
        bool write_out = std::exchange(write_out_, false);
        std::string reason = std::exchange(asked_reason_, {});
        woken_ = false;
        lock.unlock();
        const auto now = std::chrono::steady_clock::now();
        if (const int signal = take_dump_signal()) {
            write_out = true;
            add_reason(reason, "signal " + std::to_string(signal));
        }
        if (now >= next_write) {
            write_out = true;
            next_write = now + interval();
        }
        int error = 0;
        try {
            error = turn(write_out, reason);
            // Where nothing was to be written out, nothing shows that writing works again.
            if (!error && !write_out && !settings_.flight_recorder) error = write_error_;
        } catch (const std::bad_alloc&) {
            // The records stay in the spool; there may be memory the next time. An exception that
            // left this thread would end the training.
            error = ENOMEM;
        } catch (const std::exception&) {
            error = EIO;
        }
        tell_of_failure(error);
        header().drain_cpu_us.store(clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1000, std::memory_order_relaxed);
        lock.lock();
        write_error_ = error;
        ++passes_;
        passed_.notify_all();
    }
    lock.unlock();
    const int error = end();
    lock.lock();
    write_error_ = error;
    drain_ended_ = true;
    passed_.notify_all();
}

int Session::turn(bool write_out, std::string_view reason) {
    std::lock_guard looking(pass_mutex_);
    // There was no room for it, perhaps, and now there is.
    if (write_out) marker_.write(settings_, spool_.path());
    if (write_out) tell_of_removal();
    if (settings_.flight_recorder) {
        look_after_kept();
        if (!reason.empty()) ask_for_dump(reason);
        return dump_due_ ? write_kept(true) : 0;
    }
    if (!pass()) return writer_.last_error();
    if (write_out)
        if (const int error = writer_.flush()) return error;
    if (!writer_.anything_to_write()) {
        drop_ended_sources();
        apply_releases();
    }
    return 0;
}

// Once for the run, since a full disk may come and go: the footer and `stats` have the figures.
void Session::tell_of_failure(int error) {
    writer_failing_.store(error != 0, std::memory_order_relaxed);
    const int before = static_cast<int>(header().write_error.exchange(static_cast<std::uint32_t>(error)));
    if (!error == !before || told_of_failure_) return;
    if (error)
        std::fprintf(stderr,
                     "dftrace: %s cannot be written: %s; events wait in the spool, up to %zu bytes of them\n",
                     writer_.path().c_str(), reason_of(error).text, settings_.spool_bytes);
    else
        std::fprintf(stderr, "dftrace: %s is written again\n", writer_.path().c_str());
    told_of_failure_ = !error;
}

// Whoever clears /dev/shm takes away what would be left of this process if it were killed, and no more.
void Session::tell_of_removal() {
    if (told_of_removal_ || !spool_.removed()) return;
    told_of_removal_ = true;
    std::fprintf(stderr,
                 "dftrace: %s was removed while its process lives: recording goes on, but what is not in the "
                 "trace yet would be lost if the process were killed\n",
                 spool_.path().c_str());
}

void Session::follow_clock() {
    if (!clock_.follow()) return;
    SpoolHeader& h = header();
    const std::uint32_t number = h.clock_segments.load(std::memory_order_relaxed);
    h.clock[clock_slot(number)] = clock_.segments().back();
    h.clock_segments.store(number + 1, std::memory_order_release);
}

void Session::take_in_new_sources() {
    std::lock_guard lock(threads_mutex_);
    sources_.reserve(sources_.size() + new_sources_.size());  // no memory, and nothing has moved
    for (auto& source : new_sources_) sources_.push_back(std::move(source));
    new_sources_.clear();
}

bool Session::pass() {
    take_in_new_sources();
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
    follow_clock();
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
    const std::uint64_t now = settings_.flight_recorder ? tick_source.now() : passes_;
    for (const std::uint32_t id : tables_.take_releases()) releases_.emplace_back(now, id);
}

void Session::apply_releases() {
    // A record that names a snapshot was stored before the snapshot's release; one whole pass
    // after the release was seen, all such records are in the file. A flight recorder has let go of
    // them once nothing is wanted that ended before the release was seen.
    const std::uint64_t over = settings_.flight_recorder
                                   ? std::max(header().complete_from.load(), dumped_before_)
                                   : passes_ - std::min<std::uint64_t>(passes_, 1);
    if (releases_.empty() || releases_.front().first >= over) return;
    // A span may stay open for long after its node has got other arguments: it is still told with these.
    std::set<std::uint32_t> named;
    if (!snapshots_of_open_spans(named)) return;
    const auto forgotten = std::remove_if(releases_.begin(), releases_.end(), [&](const auto& release) {
        if (release.first >= over || named.count(release.second)) return false;
        tables_.forget(release.second);
        return true;
    });
    if (forgotten == releases_.end()) return;
    releases_.erase(forgotten, releases_.end());
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

// A snapshot was released after the last span that names it had been opened, so that span is seen here
// if it is still open. From the top down: a span that moves meanwhile, as one below it is taken out,
// moves ahead of the look.
bool Session::snapshots_of_open_spans(std::set<std::uint32_t>& named) {
    take_in_new_sources();
    for (const auto& source : sources_) {
        if (source->overwritten.load(std::memory_order_acquire)) continue;
        const ThreadBlock& block = *source->block;
        std::uint32_t depth = block.depth.load(std::memory_order_acquire);
        if (depth > max_open_spans) return false;  // only its own thread sees those
        while (depth > 0) named.insert(block.open[--depth].args);
        for (const OpenSpan& span : block.tasks) named.insert(span.args);
    }
    return true;
}

void Session::drop_ended_sources() {
    const auto gone = [this](const std::unique_ptr<Source>& source) {
        const bool overwritten = source->overwritten.load(std::memory_order_acquire);
        // A thread that ended inside a span is told at the end of the run.
        if (!overwritten && (!source->over || holds_open_spans(*source->block))) return false;
        writer_.forget_track(source->track);
        std::lock_guard lock(threads_mutex_);
        std::erase_if(threads_, [&](const auto& thread) { return thread.get() == source->thread; });
        if (overwritten) return true;
        if (source->unit != &source->block->unit) free_unit(source->unit);
        free_unit(&source->block->unit);
        return true;
    };
    std::erase_if(sources_, gone);
}

}  // namespace dftrace
