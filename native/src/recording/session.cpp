// Life of a session: threads come and go, everything ends.
#include "dftrace/recording/session.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <system_error>

#include "dftrace/reading/waiting_events.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/signals_blocked.hpp"

namespace dftrace {

namespace {

std::uint64_t room(const std::string& directory) {
    struct statvfs info;
    return statvfs(directory.c_str(), &info) == 0 && access(directory.c_str(), W_OK) == 0
               ? std::uint64_t{info.f_bavail} * info.f_frsize
               : 0;
}

// Memory first (a disk's write-back makes each page fault again), a local disk next.
std::vector<std::string> spool_directories(const TraceSettings& settings) {
    if (!settings.spool_dir.empty()) return {settings.spool_dir};
    // /dev/shm is where data loaders hand over their tensors, and small in many containers: it is
    // taken only where a full spool would leave them as much again.
    std::vector<std::string> found;
    if (room("/dev/shm") >= 2 * std::uint64_t{settings.spool_bytes}) found.emplace_back("/dev/shm");
    if (!found.empty()) return found;
    const std::string own = directory_of(settings.prefix);
    if (!is_network_file_system(own)) found.push_back(own);
    found.emplace_back("/tmp");
    if (found.front() != own) found.push_back(own);
    return found;
}

// The settings for the spool. A very long command line is left out: it may be in the trace already,
// and without the settings nobody could complete it.
std::string settings_that_fit(TraceSettings settings, std::size_t bytes) {
    std::string encoded = settings.encode();
    for (std::string TraceSettings::*text :
         {&TraceSettings::command_json, &TraceSettings::header_json, &TraceSettings::cwd_json}) {
        if (encoded.size() <= bytes) break;
        (settings.*text).clear();
        encoded = settings.encode();
    }
    return encoded.size() <= bytes ? encoded : std::string();
}

// What whoever finds the spool needs to complete the trace.
Spool::Beginning beginning_of(const TraceSettings& settings, const ClockMap& clock,
                              std::uint32_t parent_pid) {
    return [run = settings.run, encoded = settings_that_fit(settings, sizeof SpoolHeader::settings),
            segment = clock.segments().front(), parent_pid](SpoolHeader& h) noexcept {
        h.parent_pid = parent_pid;
        std::strncpy(h.run, run.c_str(), sizeof h.run - 1);
        std::memcpy(h.settings, encoded.data(), encoded.size());
        h.settings_bytes = static_cast<std::uint32_t>(encoded.size());
        h.clock[0] = segment;
        h.clock_segments.store(1, std::memory_order_release);
    };
}

// There is room for a spool, and files may be made; 0 or an errno. Nothing of it stays.
int try_place(const std::string& directory, const std::string& path) {
    HeldFile probe;
    const bool nameless = probe.create_nameless(directory, O_RDWR) == 0;
    if (!nameless)
        if (const int error = probe.create_new(path, O_RDWR)) return error;
    const int error = probe.reserve(0, 4 * unit_bytes);
    if (!nameless) unlink(path.c_str());
    return error;
}

Spool new_spool(const TraceSettings& settings, const Spool::Beginning& beginning) {
    const ProcessIdentity self = ProcessIdentity::self();
    const std::string name = "/dftrace-" + settings.run.substr(0, 16) + "-" + std::to_string(self.pid) + "-" +
                             std::to_string(self.start) + "-";
    static std::atomic<unsigned> serial{0};
    std::string tried;
    for (const std::string& directory : spool_directories(settings)) {
        int error = EEXIST;
        constexpr int attempts = 16;  // a name that is taken is not taken over
        for (int attempt = 0; error == EEXIST && attempt < attempts; ++attempt) {
            const std::string path = directory + name + std::to_string(serial.fetch_add(1)) + ".spool";
            error = try_place(directory, path);
            if (error) continue;
            try {
                return Spool(path, settings.spool_bytes, beginning);
            } catch (const std::system_error& refused) {
                error = refused.code().value();
            }
        }
        tried += (tried.empty() ? "" : "; ") + directory + ": " + reason_of(error).text;
    }
    throw std::runtime_error("no directory takes the spool (" + tried + ")");
}

}  // namespace

Session::Session(const TraceSettings& settings, std::uint64_t generation, std::uint32_t parent_pid,
                 std::uint64_t epoch_offset_ns)
    : settings_(settings),
      generation_(generation),
      clock_(ClockMap::anchored_now(epoch_offset_ns)),
      spool_(new_spool(settings, beginning_of(settings, clock_, parent_pid))),
      writer_(settings_, spool_.header(), parent_pid),
      kept_(spool_) {
    writer_.on_durable = [this](UnitHeader* unit, std::uint32_t scan) { unit_durable(unit, scan); };
    start_drain_thread();
    unless_begun_.begun = true;
    // The marker tells where the spool is. A file system that is slow to take it must not hold up the
    // training for long.
    std::unique_lock lock(wake_mutex_);
    passed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return marker_tried_; });
}

Session::~Session() = default;

void Session::start_drain_thread() {
    const SignalsBlocked blocked;
    try {
        drain_thread_ = std::thread([this] { drain_loop(); });
    } catch (const std::system_error& error) {
        throw std::runtime_error(
            "the thread that writes the trace cannot be started: " + error.code().message() +
            "; raise the limit on processes and threads (RLIMIT_NPROC, ulimit -u, or "
            "pids.max of the container)");
    }
}

Thread* Session::attach(std::uint32_t tid, std::string_view name) {
    std::lock_guard lock(threads_mutex_);
    UnitHeader* unit = take_unit(UnitKind::thread, next_thread_);
    if (!unit) return nullptr;
    auto* block = reinterpret_cast<ThreadBlock*>(unit);
    block->tid = tid;
    block->ended.store(0, std::memory_order_relaxed);
    block->depth.store(0, std::memory_order_relaxed);
    block->task_slots = 0;
    std::fill(std::begin(block->tasks), std::end(block->tasks), OpenSpan{});
    std::memset(block->name, 0, sizeof block->name);
    std::memcpy(block->name, name.data(), std::min(name.size(), sizeof block->name - 1));

    auto thread = std::make_unique<Thread>();
    thread->generation = generation_;
    thread->block = block;
    thread->session = this;
    thread->number = next_thread_++;
    thread->unit = unit;
    thread->cursor = records_of(unit);
    thread->limit = thread->cursor + unit->capacity;
    thread->committed = &unit->committed;

    auto source = std::make_unique<Source>();
    source->block = block;
    source->unit = unit;
    source->thread = thread.get();
    source->track.tid = tid;
    source->track.name = std::string(name);
    thread->source = source.get();
    new_sources_.push_back(std::move(source));
    threads_.push_back(std::move(thread));
    return threads_.back().get();
}

void Session::detach(Thread* thread) {
    if (settings_.flight_recorder) {
        kept_.add_last(thread->source);
        return;
    }
    thread->block->ended.store(1, std::memory_order_release);
    // Threads may come and go faster than the file is written: their units are wanted back.
    constexpr std::uint32_t batch = 32;
    if (ended_threads_.fetch_add(1, std::memory_order_relaxed) % batch == batch - 1) wake(true);
}

void Session::remove_open_elsewhere(const Thread& thread, std::uint64_t id) noexcept {
    std::lock_guard lock(threads_mutex_);
    for (auto& other : threads_)
        if (other.get() != &thread) other->remove(id);
}

UnitHeader* Session::acquire_ring_unit(Thread& thread) noexcept {
    const auto give = [&]() -> UnitHeader* {
        const std::uint64_t freed = units_freed();
        // Nothing was freed since the refusal: no need to ask.
        UnitHeader* unit =
            thread.refused_at == freed + 1 ? nullptr : take_unit(UnitKind::ring, thread.number);
        if (!unit) {
            thread.refused_at = freed + 1;
            if (!settings_.flight_recorder) return reuse_own_unit(thread);
            if (!kept_.start_over(thread.unit, *thread.source)) return nullptr;
            thread.refused_at = 0;
            return thread.unit;
        }
        thread.refused_at = 0;
        unit->before = thread.unit->before + thread.unit->capacity;
        // Release: a drain thread that sees the link sees the header behind it.
        thread.unit->next.store(spool_.index_of(unit), std::memory_order_release);
        if (settings_.flight_recorder && thread.unit->kind == UnitKind::ring)
            kept_.add(thread.unit, thread.source);
        return unit;
    };
    UnitHeader* unit = give();
    if (!unit && settings_.wait_on_overflow) {
        header().waits.fetch_add(1, std::memory_order_relaxed);
        while (!unit && !writer_failing_.load(std::memory_order_relaxed)) {
            std::unique_lock lock(wake_mutex_);
            if (stop_) break;
            write_out_ = true;
            woken_ = true;
            wake_.notify_one();
            passed_.wait_for(lock, std::chrono::milliseconds(20));
            lock.unlock();
            thread.refused_at = 0;
            unit = give();
        }
    }
    if (!unit) header().dropped.fetch_add(1, std::memory_order_relaxed);
    if (!settings_.flight_recorder) wake();
    return unit;
}

// The thread's unit once more, if all of its records are in the file. It is the last of its chain,
// which nobody frees: threads that hold all units between them would else get none ever again.
UnitHeader* Session::reuse_own_unit(Thread& thread) noexcept {
    // Not waited for: the drain thread holds it while it writes, on whatever file system that is.
    std::unique_lock looking(pass_mutex_, std::try_to_lock);
    if (!looking) return nullptr;
    UnitHeader* unit = thread.unit;
    if (unit->consumed != unit->capacity) return nullptr;
    Source& source = *thread.source;
    if (source.unit != unit || source.scan != unit->capacity) return nullptr;
    // In this order: should the process die here, no record is taken for a new one.
    unit->committed.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    unit->consumed = unit->pending = 0;
    unit->pending_write = 0;
    unit->before += unit->capacity;
    source.scan = 0;
    return unit;
}

void Session::wake(bool write_out) {
    std::lock_guard lock(wake_mutex_);
    write_out_ |= write_out;
    woken_ = true;
    wake_.notify_one();
}

int Session::flush(bool (*interruption)(), std::chrono::milliseconds limit) {
    return dump("flush", interruption, limit);
}

int Session::dump(std::string_view reason, bool (*interruption)(), std::chrono::milliseconds limit) {
    const pid_t self = getpid();
    const auto until = std::chrono::steady_clock::now() + limit;
    std::unique_lock lock(wake_mutex_);
    add_reason(asked_reason_, reason);
    // The pass that is under way may have looked too early: the one after it has not.
    const std::uint64_t enough = passes_ + 2;
    while (passes_ < enough && !drain_ended_) {
        // The drain thread hangs, and nobody waits for it any more.
        if (abandoned_) return ETIMEDOUT;
        write_out_ = true;
        woken_ = true;
        wake_.notify_one();
        if (passed_.wait_for(lock, std::chrono::milliseconds(100)) != std::cv_status::timeout) continue;
        if (limit.count() && std::chrono::steady_clock::now() >= until) return ETIMEDOUT;
        if (!interruption) continue;
        // What the signal's handler calls may end the run: then this session is over, and still there.
        lock.unlock();
        if (interruption()) return EINTR;
        if (getpid() != self) return 0;  // it has forked: there is no drain thread here, and nothing to write
        lock.lock();
    }
    return write_error_;
}

// The drain thread writes the end as well: whoever calls waits for it, but not for ever.
Outcome Session::finish(const Ending& ending) {
    std::unique_lock lock(wake_mutex_);
    ending_ = ending;
    stop_ = true;
    wake_.notify_one();
    const bool ended = passed_.wait_for(lock, std::chrono::milliseconds(settings_.finish_timeout_ms),
                                        [this] { return drain_ended_; });
    Outcome outcome;
    outcome.spool_bytes = spool_bytes_used();
    outcome.losses = header().losses();
    if (const int refused = spool_.refused()) outcome.spool_refusal = reason_of(refused).text;
    // A write that hangs has a mark already, and may never land.
    const WriteMark& mark = header().marks[header().landed.load() % 2];
    outcome.events = std::accumulate(mark.lines.begin(), mark.lines.end(), std::uint64_t{0}) +
                     std::accumulate(mark.earlier_lines.begin(), mark.earlier_lines.end(), std::uint64_t{0});
    if (!ended) {
        // It hangs in a call to the file system. Everything stays as it is: the thread may wake up.
        drain_thread_.detach();
        outcome.abandoned = abandoned_ = true;
        passed_.notify_all();
        outcome.lost_lines = waiting_events(spool_.memory(), spool_.used_bytes());
        outcome.error = "the file system does not answer";
        outcome.trace_path = header().trace_paths[header().last_mark().part % 2].get();
        outcome.spool_path = spool_.path();
        return outcome;
    }
    lock.unlock();
    drain_thread_.join();
    outcome.trace_path = writer_.path();
    outcome.events = writer_.lines_written();
    if (write_error_) {
        // The spool keeps what the file could not take; a later reader finishes the trace.
        outcome.error = reason_of(write_error_).text;
        outcome.lost_lines = waiting_events(spool_.memory(), spool_.used_bytes());
        if (!spool_.removed()) outcome.spool_path = spool_.path();
        outcome.marked = marker_.written();
    }
    outcome.spoilt_lines = writer_.spoilt_lines();
    outcome.lost_lines += outcome.spoilt_lines;
    if (outcome.error.empty() && outcome.spoilt_lines)
        outcome.error = "a file of it was removed or cut while it was written";
    return outcome;
}

// Completes the trace; 0 or an errno.
int Session::end() noexcept {
    std::lock_guard looking(pass_mutex_);
    int error = 0;
    try {
        header().drain_cpu_us.store(clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1000, std::memory_order_relaxed);
        error = write_rest(ending_);
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    } catch (const std::exception&) {
        error = EIO;
    }
    if (error) {
        // Removed by somebody; what the trace could not take is in memory only.
        if (spool_.removed()) spool_.store_again();
        marker_.write(settings_, spool_.path());
        return error;
    }
    header().finalized.store(1, std::memory_order_release);
    // A marker without a spool means that something was lost, unless it says otherwise; a spool without a
    // marker may never be found.
    const bool told = marker_.tell_complete(writer_.path_now());
    if (!told) marker_.remove();
    spool_.unlink();
    marker_.remove();
    return 0;
}

// Everything that is still to be told, and the footer. 0 or an errno.
int Session::write_rest(Ending ending) {
    ending.overwritten = header().overwritten.load();
    if (settings_.flight_recorder) {
        look_after_kept();
        if (ending.how == "exception") {
            ask_for_dump("exception " + ending.error, ending.details);
        }
        if (!dump_due_) {
            ending.overwritten += let_go_of_kept();
            return writer_.finish(ending);
        }
        if (const int error = write_kept(false)) return error;
        ending.overwritten = header().overwritten.load();
    } else if (!pass()) {
        return writer_.last_error();
    }
    if (const int error = writer_.end_records()) return error;
    write_unfinished();
    if (const int error = writer_.lost_spans()) return error;
    return writer_.finish(ending);
}

void Session::write_unfinished() {
    for (auto& source : sources_) {
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
