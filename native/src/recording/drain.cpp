// The life of the drain thread, which never needs the interpreter.
#include "dftrace/recording/drain.hpp"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>

#include "dftrace/recording/dump_signal.hpp"
#include "dftrace/recording/stacks_now.hpp"
#include "dftrace/system/first_exception.hpp"
#include "dftrace/system/signals_blocked.hpp"
#include "dftrace/system/waiting.hpp"

namespace dftrace {

namespace {

AskedEnd asked_end(const Ending& ending) noexcept {
    if (ending.how == "finalize") return AskedEnd::finalize;
    if (ending.how == "exit") return AskedEnd::exit;
    return ending.how == "exception" ? AskedEnd::exception : AskedEnd::none;
}

}  // namespace

// Where nobody has asked for the end.
Drain::~Drain() {
    if (!thread_.joinable()) return;
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void Drain::start() {
    const SignalsBlocked blocked;
    try {
        thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error& error) {
        throw std::runtime_error(
            "the thread that writes the trace cannot be started: " + error.code().message() +
            "; raise the limit on processes and threads (RLIMIT_NPROC, ulimit -u, or "
            "pids.max of the container)");
    }
}

void Drain::wait_for_marker(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex_);
    static_cast<void>(wait_until(passed_, lock, Clock::now() + most, [this] { return marker_tried_; }));
}

void Drain::tell_others_every(std::uint32_t ms) {
    const std::lock_guard lock(mutex_);
    if (live_ms_) return;
    live_ms_ = ms;
    woken_ = true;
    wake_.notify_one();
}

void Drain::wake(bool write_out) {
    std::lock_guard lock(mutex_);
    write_out_ |= write_out;
    woken_ = true;
    wake_.notify_one();
}

bool Drain::wait_for_room() {
    if (failing_.load(std::memory_order_relaxed)) return false;
    std::unique_lock lock(mutex_);
    if (stop_) return false;
    write_out_ = true;
    woken_ = true;
    wake_.notify_one();
    static_cast<void>(wait_some(passed_, lock, std::chrono::milliseconds(20)));
    return true;
}

int Drain::dump(std::string_view reason, bool (*interruption)(), std::chrono::milliseconds limit) {
    const pid_t self = getpid();
    const auto until = Clock::now() + limit;
    std::unique_lock lock(mutex_);
    if (!add_reason(asked_reason_, reason)) return ENOMEM;
    // The pass that is under way may have looked too early: the one after it has not.
    const std::uint64_t enough = passes_ + 2;
    while (passes_ < enough && !ended_) {
        // The drain thread hangs, and nobody waits for it any more.
        if (abandoned_) return ETIMEDOUT;
        write_out_ = true;
        woken_ = true;
        wake_.notify_one();
        if (wait_some(passed_, lock, std::chrono::milliseconds(100))) continue;
        if (limit.count() && Clock::now() >= until) return ETIMEDOUT;
        if (!interruption) continue;
        // What the signal's handler calls may end the run: then this session is over, and still there.
        lock.unlock();
        if (interruption()) return EINTR;
        if (getpid() != self) return 0;  // it has forked: there is no drain thread here, and nothing to write
        lock.lock();
    }
    return error_;
}

// The drain thread writes the end as well: whoever calls waits for it, but not for ever.
bool Drain::finish(Ending ending) {
    std::unique_lock lock(mutex_);
    spool_.header().asked_end.store(static_cast<std::uint32_t>(asked_end(ending)), std::memory_order_relaxed);
    ending_ = std::move(ending);
    stop_ = true;
    wake_.notify_one();
    const auto until = Clock::now() + std::chrono::milliseconds(settings_.finish_timeout_ms);
    if (!wait_until(passed_, lock, until, [this] { return ended_; })) {
        thread_.detach();
        abandoned_ = true;
        passed_.notify_all();
        return false;
    }
    lock.unlock();
    thread_.join();
    return true;
}

void Drain::loop() {
    throw_first_exception();
    pthread_setname_np(pthread_self(), "dftrace-drain");
    spool_.header().look_at_clocks();  // for the header, whoever writes it
    marker_.write(settings_, spool_.path());
    std::chrono::milliseconds live_interval(0);
    auto next_live = Clock::time_point::max();
    const auto interval = retention_.interval(std::chrono::milliseconds(settings_.flush_interval_ms));
    auto next_write = Clock::now() + interval;
    std::unique_lock lock(mutex_);
    marker_tried_ = true;
    passed_.notify_all();
    woken_ = woken_ || live_ms_;
    Clock::time_point turned_at{};
    // What is asked for while a turn is under way is done before the end.
    for (bool last = false; !last;) {
        // Not "for an interval": what a full unit wakes this thread for must not put the write off. A turn of
        // a flight recorder may not look at what is ready: it is not made for that again.
        const auto look_again = flow_.ahead().look_again();
        const auto next = std::min(next_write, next_live);
        wait_until(wake_, lock, look_again > turned_at ? std::min(next, look_again) : next,
                   [this] { return stop_ || woken_; });
        bool write_out = std::exchange(write_out_, false);
        DumpRequest dump{std::exchange(asked_reason_, {}), {}};
        woken_ = false;
        if (live_ms_ && !live_interval.count()) {
            live_interval = std::chrono::milliseconds(live_ms_);
            live_file_.begin(live_ms_);
            next_live = {};
        }
        last = stop_;
        lock.unlock();
        const auto now = turned_at = Clock::now();
        const int signal = take_dump_signal();
        if (signal) {
            write_out = true;
            char text[24];
            std::snprintf(text, sizeof text, "signal %d", signal);
            add_reason(dump.reason, text);
        }
        // Without a flight recorder, who asks from the program wants a flush.
        const bool tells_stacks = signal || (settings_.flight_recorder && !dump.reason.empty());
        if (now >= next_write) {
            write_out = true;
            next_write = now + interval;
            // Whoever completes the trace of this process sees until when it lived, also where it hung.
            if (const int file = spool_.descriptor(); file >= 0) futimens(file, nullptr);
        }
        if (now >= next_live) {
            live_file_.write(marker_.path());
            next_live = now + live_interval;
        }
        const int error = turn(write_out, std::move(dump), tells_stacks);
        tell_of_failure(error);
        spool_.header().drain_cpu_us.store(clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1000,
                                           std::memory_order_relaxed);
        lock.lock();
        error_ = error;
        ++passes_;
        passed_.notify_all();
    }
    lock.unlock();
    const int error = end();
    lock.lock();
    error_ = error;
    ended_ = true;
    passed_.notify_all();
}

int Drain::turn(bool write_out, DumpRequest dump, bool tells_stacks) noexcept {
    try {
        if (tells_stacks) dump.stacks = stacks_now(settings_);
        // There was no room for it, perhaps, and now there is.
        if (write_out) marker_.write(settings_, spool_.path());
        if (write_out) tell_of_removal();
        // Where nothing was to be written out, nothing shows that writing works again.
        return retention_.turn(flow_, write_out, std::move(dump)).value_or(error_);
    } catch (const std::bad_alloc&) {
        // The records stay in the spool; there may be memory the next time. An exception that left this
        // thread would end the training.
        return ENOMEM;
    } catch (const std::exception&) {
        return EIO;
    }
}

// Once for the run, since a full disk may come and go: the footer and `stats` have the figures.
void Drain::tell_of_failure(int error) {
    failing_.store(error != 0, std::memory_order_relaxed);
    const auto told = static_cast<std::uint32_t>(error);
    const int before = static_cast<int>(spool_.header().write_error.exchange(told));
    if (!error == !before || told_of_failure_) return;
    const char* path = flow_.writer().path().c_str();
    if (error)
        std::fprintf(stderr,
                     "dftrace: %s cannot be written: %s; events wait in the spool, up to %zu bytes of them\n",
                     path, reason_of(error).text, settings_.spool_bytes);
    else
        std::fprintf(stderr, "dftrace: %s is written again\n", path);
    told_of_failure_ = !error;
}

// Whoever clears /dev/shm takes away what would be left of this process if it were killed, and no more.
void Drain::tell_of_removal() {
    if (told_of_removal_ || !spool_.removed()) return;
    told_of_removal_ = true;
    std::fprintf(stderr,
                 "dftrace: %s was removed while its process lives: recording goes on, but what is not in the "
                 "trace yet would be lost if the process were killed\n",
                 spool_.path().c_str());
}

// Completes the trace; 0 or an errno.
int Drain::end() noexcept {
    SpoolHeader& header = spool_.header();
    int error = 0;
    try {
        header.drain_cpu_us.store(clock_ns(CLOCK_THREAD_CPUTIME_ID) / 1000, std::memory_order_relaxed);
        error = retention_.end(flow_, ending_);
    } catch (const std::bad_alloc&) {
        error = ENOMEM;
    } catch (const std::exception&) {
        error = EIO;
    }
    // Before the marker goes, by which it is found. The trace is written: no more time is lost over it.
    live_file_.end(std::chrono::seconds(2));
    if (error) {
        header.write_error.store(static_cast<std::uint32_t>(error), std::memory_order_relaxed);
        spool_.give_back_prepared();  // it stays
        // Removed by somebody; what the trace could not take is in memory only.
        if (spool_.removed()) spool_.store_again();
        marker_.write(settings_, spool_.path());
        return error;
    }
    header.finalized.store(1, std::memory_order_release);
    clear_away();
    return 0;
}

// A marker without a spool means that something was lost, unless it says otherwise; a spool without a marker
// may never be found. So neither goes where the other has to stay: that the trace is complete stands in both.
void Drain::clear_away() {
    const bool told = marker_.tell_complete();
    int error = told ? 0 : marker_.remove();
    if (!error) error = spool_.unlink();
    if (!error) error = marker_.remove();
    if (!error || spool_.removed()) return;
    std::fprintf(stderr,
                 "dftrace: %s stays: %s; the trace is complete, and the next dftrace command that reads its "
                 "directory, and may, removes it\n",
                 spool_.path().c_str(), reason_of(error).text);
}

}  // namespace dftrace
