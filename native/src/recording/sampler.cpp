// Ticks at drawn times: a fixed period would beat against the steps of a training.
#include "dftrace/recording/sampler.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>

#include "dftrace/recording/thread.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/system/first_exception.hpp"
#include "dftrace/system/signals_blocked.hpp"

namespace dftrace {

namespace {

// Held during a tick, and around a fork.
std::mutex ticking;

constexpr auto between_chunks = std::chrono::seconds(1);
constexpr std::size_t most_samples = 4096;     // of a chunk
constexpr std::size_t most_bytes = 40 * 1024;  // so that it fits into a unit
constexpr std::uint32_t most_chunks = 64;      // of a profile: who reads from the middle finds nodes
constexpr std::size_t most_nodes = 1 << 15;    // of a profile
constexpr std::uint64_t most_late = 1 << 20;   // periods, which may be days
constexpr int most_unseen = 10;                // ticks, until it is not known where a thread stands
constexpr std::uint64_t untold_misses = 1000;  // before they are told without a sample
constexpr std::uint64_t second_ns = 1'000'000'000;

std::uint64_t boot_ns() { return clock_ns(CLOCK_BOOTTIME); }

// By the kernel's own clock, whatever a preloaded library makes of others.
void wait_while(std::atomic<std::uint32_t>& word, std::uint32_t value, std::uint64_t most_ns) noexcept {
    const timespec most{static_cast<time_t>(most_ns / second_ns), static_cast<long>(most_ns % second_ns)};
    syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, &most, nullptr, 0);
}

void change(std::atomic<std::uint32_t>& word) noexcept {
    word.fetch_add(1);
    syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// How long a thread has been ready to run without being let, since it began; below 0 where nobody knows.
std::int64_t ready_ns_of(pid_t tid) noexcept {
    char text[96];
    std::snprintf(text, sizeof text, "/proc/self/task/%d/schedstat", tid);
    const int file = open(text, O_RDONLY | O_CLOEXEC);
    if (file < 0) return -1;
    const ssize_t size = read(file, text, sizeof text - 1);
    close(file);
    text[std::max<ssize_t>(size, 0)] = 0;
    long long ran = 0, ready = 0;
    // A kernel that does not count says that nothing ever ran.
    return std::sscanf(text, "%lld %lld", &ran, &ready) == 2 && ran > 0 ? ready : -1;
}

InterpreterLayout known_layout;
bool layout_is_known = false;

}  // namespace

void set_interpreter_layout(const InterpreterLayout& layout) noexcept {
    known_layout = layout;
    layout_is_known = true;
}

const InterpreterLayout* interpreter_layout() noexcept { return layout_is_known ? &known_layout : nullptr; }

void Sampler::hold_ticks() noexcept { ticking.lock(); }
void Sampler::go_on() noexcept { ticking.unlock(); }
void Sampler::after_fork_in_child() noexcept { new (&ticking) std::mutex; }

Sampler::Sampler(const TraceSettings& settings, const InterpreterLayout& layout, MemoryWay way,
                 ThreadRegistry& threads, BlobStore& blobs, Retention& retention)
    : settings_(settings),
      threads_(threads),
      blobs_(blobs),
      retention_(retention),
      places_(settings.lines_roots, settings.lines_files),
      reader_(layout, way, boot_ns),
      each_alone_(settings.max_file_bytes || settings.flight_recorder),
      random_((boot_ns() ^ static_cast<std::uint64_t>(getpid()) << 40) | 1) {}

std::string Sampler::start() {
    own_ = threads_.attach(retention_, sampler_tid, "lines");
    if (!own_) return "the spool has no room";
    std::fill(std::begin(own_->block->open), std::end(own_->block->open), OpenSpan{});
    const SignalsBlocked blocked;
    try {
        thread_ = std::thread([this] { loop(); });
    } catch (const std::system_error& error) {
        return "no thread can be started: " + error.code().message();
    }
    return {};
}

void Sampler::stop() noexcept {
    if (!thread_.joinable()) return;
    stop_ = true;
    change(wakings_);
    thread_.join();
}

void Sampler::store_now() noexcept {
    constexpr std::uint64_t most_ns = second_ns / 10;
    const std::uint32_t before = storings_;
    asked_to_store_ = true;
    change(wakings_);
    wait_while(storings_, before, most_ns);
}

bool Sampler::wait_for_tick() noexcept {
    const std::uint32_t wakings = wakings_;
    const std::uint64_t now = boot_ns();
    if (now >= due_ns_) return true;
    if (!stop_ && !asked_to_store_) wait_while(wakings_, wakings, due_ns_ - now);
    return boot_ns() >= due_ns_;
}

// How many periods have passed since the last tick beside the one that its sample stands for; when the next
// one is due.
std::uint64_t Sampler::late_periods(std::uint64_t now_ns) noexcept {
    const std::uint64_t period_ns = second_ns / settings_.lines_hz;
    late_ns_ += now_ns - std::min(due_ns_, now_ns);
    const std::uint64_t late = late_ns_ / period_ns;
    late_ns_ %= period_ns;
    random_ ^= random_ << 13;
    random_ ^= random_ >> 7;
    random_ ^= random_ << 17;
    due_ns_ = now_ns + period_ns / 2 + random_ % period_ns;
    return std::min(late, most_late);
}

void Sampler::loop() noexcept {
    throw_first_exception();
    pthread_setname_np(pthread_self(), "dftrace-lines");
    store_at_ = Clock::now() + between_chunks;
    late_periods(due_ns_ = boot_ns());
    for (bool last = false; !last;) {
        const bool due = wait_for_tick();
        const bool asked = asked_to_store_.exchange(false);
        last = stop_;
        try {
            if (due && !last && !asked) tick();
            store_all(asked, last);
        } catch (const std::bad_alloc&) {
            // A table may lack its last entry by now.
            for (auto& [tid, one] : sampled_) one.profile.lost();
            begin_anew();
        }
        if (asked) change(storings_);
    }
}

void Sampler::tick() {
    threads_.living(living_);
    const auto main = static_cast<std::uint32_t>(getpid());
    if (std::ranges::find(living_, main, &LivingThread::tid) == living_.end())
        living_.push_back({main, false});
    const auto found = [this](pid_t tid) {
        return std::ranges::find(living_, static_cast<std::uint32_t>(tid), &LivingThread::tid);
    };
    ++round_;
    const std::uint64_t late = late_periods(boot_ns());
    samples_.clear();
    const std::uint64_t now = tick_source.now();
    {
        const std::lock_guard lock(ticking);
        reader_.sample([&](pid_t tid) { return found(tid) != living_.end(); }, samples_);
    }
    for (const LivingThread& thread : living_) {
        const auto known = sampled_.find(static_cast<pid_t>(thread.tid));
        if (known == sampled_.end()) continue;
        known->second.round = round_;
        ++known->second.unseen;
    }
    const auto of_thread = [&](pid_t tid) -> Sampled& {
        const auto [at, is_new] = sampled_.try_emplace(tid, reader_, places_);
        Sampled& one = at->second;
        if (is_new) {
            restart(one);
            one.ready_ns = ready_ns_of(tid);
        }
        if (one.profile.empty()) one.first_tick = now;
        one.round = round_;
        return one;
    };
    for (const StackSample& sample : samples_) {
        // What stands still outside of all that is annotated tells nothing of the training.
        const bool idle = sample.cpu_ns == 0 && !found(sample.thread)->in_span;
        Sampled& one = of_thread(sample.thread);
        if (one.stack != sample.stack) one.since_tick = now;
        one.stack = sample.stack;
        one.cut = sample.cut;
        one.unseen = 0;
        if (!idle) one.profile.add(sample, us_of(sample.at_ns), late);
    }
    for (const pid_t tid : reader_.unread()) of_thread(tid).profile.miss();
}

// Relative to the same moment as the times of the trace's lines.
std::uint64_t Sampler::us_of(std::uint64_t ns) const noexcept {
    const std::uint64_t us = (ns + settings_.epoch_offset_ns) / 1000;
    const std::uint64_t base = settings_.epoch_us ? 0 : settings_.time_base_us;
    return us > base ? us - base : 0;
}

void Sampler::store_all(bool now, bool last) {
    const auto at = Clock::now();
    const bool full = reader_.is_full();
    const bool due = now || last || full || at >= store_at_;
    if (due) store_at_ = at + between_chunks;
    for (auto each = sampled_.begin(); each != sampled_.end();) {
        auto& [tid, one] = *each;
        const bool gone = last || one.round != round_;
        const bool misses = one.profile.samples() || gone || one.profile.misses() >= untold_misses;
        if ((due && misses) || one.profile.samples() >= most_samples || one.profile.bytes() >= most_bytes)
            store(tid, one);
        if (due && gone) {
            forget(one);
            each = sampled_.erase(each);
            continue;
        }
        if (due && one.unseen > most_unseen) {
            // It may stand anywhere by now.
            forget(one);
            one.stack = StackNode::no_caller;
        }
        if (due && one.told_since != one.since_tick) tell_where_it_stands(tid, one);
        ++each;
    }
    if (full) begin_anew();
}

// The reader's numbers begin again.
void Sampler::begin_anew() noexcept {
    reader_.clear();
    for (auto& [tid, one] : sampled_) {
        restart(one);
        one.stack = StackNode::no_caller;
    }
}

void Sampler::restart(Sampled& one) noexcept {
    one.profile.begin(threads_.new_ids(1));
    one.chunks = 0;
}

void Sampler::store(pid_t tid, Sampled& one) {
    if (one.profile.empty()) return;
    const bool some = one.profile.samples() != 0;
    if (!store_record(tid, one)) {
        one.profile.lost();
        restart(one);
        return;
    }
    one.profile.stored();
    if (++one.chunks >= most_chunks || each_alone_ || !some || one.profile.nodes() >= most_nodes)
        restart(one);
}

// Nobody is waited for, as a thread of the program would where that is asked for: samples are worth less than
// events.
bool Sampler::store_record(pid_t tid, Sampled& one) {
    if (own_->cursor == own_->limit) {
        UnitHeader* unit = retention_.next_unit(*own_);
        if (!unit) return false;
        own_->go_on_in(unit);
    }
    const std::int64_t before_ns = std::exchange(one.ready_ns, ready_ns_of(tid));
    const bool is_known = before_ns >= 0 && one.ready_ns >= before_ns;
    const std::int64_t ready_us = is_known ? (one.ready_ns - before_ns) / 1000 : Profile::not_known;
    const std::optional<std::uint32_t> chunk = blobs_.put_arguments(one.profile.chunk(ready_us), last_chunk_);
    if (!chunk) return false;
    last_chunk_ = *chunk;
    const bool some = one.profile.samples() != 0;
    Record& r = *own_->cursor;
    r = {};
    r.start = one.first_tick;
    r.end = std::max(tick_source.now(), r.start);
    r.id = one.profile.id();
    r.args = *chunk;
    r.lane = static_cast<std::uint32_t>(tid);
    r.value = some ? one.profile.start_us() : us_of(boot_ns());
    r.level = static_cast<std::uint16_t>(one.profile.samples());
    r.kind = Kind::profile;
    if (!one.chunks) r.flags = RecordFlag::begins_profile;
    own_->commit();
    return true;
}

// For who looks into the spool of a process that hangs. As a span that is open there, in the block of no
// thread, which tells of none.
void Sampler::tell_where_it_stands(pid_t tid, Sampled& one) {
    if (one.stack == StackNode::no_caller) return;
    OpenSpan* const slots = own_->block->open;
    if (!one.told) {
        const auto free =
            std::find_if(slots, slots + max_open_spans, [](const OpenSpan& s) { return !s.id; });
        if (free == slots + max_open_spans) return;
        one.told = free;
        one.told->id = static_cast<std::uint64_t>(tid);
    }
    std::uint32_t before = one.told->args;
    const std::optional<std::uint32_t> args =
        blobs_.put_arguments(standing_stack(reader_, places_, one.stack, one.cut), before);
    if (!args) return;
    one.told->live = 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    one.told->start = one.since_tick;
    one.told->args = *args;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    one.told->live = 1;
    one.told_since = one.since_tick;
}

void Sampler::forget(Sampled& one) noexcept {
    if (!one.told) return;
    blobs_.release_arguments(one.told->args);
    *one.told = {};
    one.told = nullptr;
}

}  // namespace dftrace
