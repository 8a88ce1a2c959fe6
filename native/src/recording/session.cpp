// A session from its beginning to its end.
#include "dftrace/recording/session.hpp"

#include <unistd.h>

#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "dftrace/reading/waiting_events.hpp"
#include "dftrace/spool/new_spool.hpp"
#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/text/names.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

Session::Session(const TraceSettings& settings, std::uint64_t generation, std::uint32_t parent_pid)
    : settings_(settings),
      generation_(generation),
      clock_(ClockMap::anchored_now(settings_.epoch_offset_ns)),
      spool_(new_spool(settings_, clock_, parent_pid)),
      retention_(make_retention(settings_, spool_, [this](bool write_out) { drain_.wake(write_out); })),
      threads_(this, generation),
      blobs_(*retention_),
      flow_(settings_, spool_, clock_, parent_pid, threads_, blobs_, *retention_),
      drain_(settings_, spool_, flow_, *retention_) {
    drain_.start();
    unless_begun_.begun = true;
    // The marker tells where the spool is: who dies without one may not be found. A busy machine takes its
    // time for it; a file system that is slow to take it must not hold up the training for long.
    drain_.wait_for_marker(std::chrono::milliseconds(500));
    if (settings_.lines_hz) begin_sampling();
}

// Events are recorded without samples just as well.
void Session::begin_sampling() {
    const InterpreterLayout* layout = interpreter_layout();
    if (!layout) return;
    std::string refused = "the kernel refuses each way of reading this process's memory";
    if (const MemoryWay way = find_memory_way(); way != MemoryWay::none)
        refused = sampler_.emplace(settings_, *layout, way, threads_, blobs_, *retention_).start();
    if (refused.empty()) return;
    sampler_.reset();
    std::fprintf(stderr, "dftrace: process %d records no lines of code: %s\n", getpid(), refused.c_str());
}

Session::~Session() = default;

Thread* Session::attach(std::uint32_t tid, std::string_view name) noexcept {
    const std::uint64_t given_back = retention_->times_given_back();
    Thread* thread = threads_.attach(*retention_, tid, name);
    if (thread)
        too_many_threads_ = SIZE_MAX;
    else
        ask_for_room(given_back);
    return thread;
}

void Session::ask_for_room(std::uint64_t given_back) noexcept {
    if (asked_for_room_.exchange(given_back + 1) != given_back + 1) drain_.wake(true);
}

bool Session::wait_to_attach(Patience& patience) noexcept {
    if (!settings_.wait_on_overflow) return false;
    const std::size_t living = threads_.living();
    if (living >= too_many_threads_) return false;
    const std::uint64_t passes = drain_.passes();
    const std::uint64_t given_back = retention_->times_given_back();
    const bool first = patience.enough_passes == 0;
    if (first) header().waits.fetch_add(1, std::memory_order_relaxed);
    // A pass that begins now writes what threads that are over have stored and lets go of their units; where
    // some came back, another thread was quicker.
    if (first || given_back != patience.given_back) patience = {passes + 4, given_back};
    if (passes < patience.enough_passes) return drain_.wait_for_room();
    too_many_threads_ = living;
    return false;
}

Thread* Session::track_apart(std::uint32_t name) noexcept {
    // Each takes a unit of the spool: who makes up names without end gets the last one.
    constexpr std::size_t most = 64;
    for (const auto& [known, track] : tracks_apart_)
        if (known == name) return track;
    if (tracks_apart_.size() == most) return tracks_apart_.back().second;
    try {
        tracks_apart_.reserve(tracks_apart_.size() + 1);
        const std::string json = interned_json(name);
        const std::optional<JsonName> parts = parts_of_json_name(json);
        const std::string text = parts ? text_of_json_string(parts->name) : "unknown";
        const std::uint32_t lane = first_task_lane + new_lane();
        Patience patience;
        Thread* track;
        do track = attach(lane, text);
        while (!track && wait_to_attach(patience));
        if (track) tracks_apart_.emplace_back(name, track);
        return track;
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

UnitHeader* Session::next_unit(Thread& thread) noexcept {
    UnitHeader* unit = retention_->next_unit(thread);
    if (!unit && settings_.wait_on_overflow) {
        header().waits.fetch_add(1, std::memory_order_relaxed);
        while (!unit && drain_.wait_for_room()) {
            thread.refused_at = 0;
            unit = retention_->next_unit(thread);
        }
    }
    if (!unit) count_dropped();
    return unit;
}

std::optional<std::uint32_t> Session::put_arguments(std::string_view json_members,
                                                    std::uint32_t& instead_of) noexcept {
    const std::uint64_t given_back = retention_->times_given_back();
    std::optional<std::uint32_t> stored = blobs_.put_arguments(json_members, instead_of);
    if (!stored && settings_.wait_on_overflow) {
        header().waits.fetch_add(1, std::memory_order_relaxed);
        // A pass that begins now writes what names arguments, the next one lets go of them, and the one after
        // it of their unit: what is still there then is in use, or what is to be stored is too large.
        const std::uint64_t enough = drain_.passes() + 4;
        for (bool more = true; !stored && more;) {
            more = drain_.wait_for_room() && drain_.passes() < enough;
            stored = blobs_.put_arguments(json_members, instead_of);
        }
    }
    if (stored) return stored;
    if (!blobs_.would_take(json_members)) {
        count_sanitised(1);
        return 0;
    }
    ask_for_room(given_back);
    return std::nullopt;
}

void Session::finish(Ending ending, Outcome& outcome) {
    if (sampler_) sampler_->stop();
    outcome.abandoned = !drain_.finish(std::move(ending));
    outcome.spool_bytes = spool_bytes_used();
    outcome.losses = header().losses();
    // A write that hangs has a mark already, and may never land.
    const WriteMark& mark = header().marks[header().landed.load() % 2];
    outcome.events = events_of(mark.lines) + events_of(mark.earlier_lines);
    const TraceWriter& writer = flow_.writer();
    if (!outcome.abandoned) {
        outcome.events = writer.blocks().lines_written();
        outcome.spoilt_lines = outcome.lost_lines = writer.blocks().spoilt_lines();
        outcome.marked = drain_.error() && drain_.marked();
    }
    if (const int refused = spool_.refused()) outcome.spool_refusal = reason_of(refused).text;
    if (outcome.abandoned) {
        outcome.lost_lines = waiting_events(spool_.memory(), spool_.used_bytes());
        outcome.error = "the file system does not answer";
        outcome.trace_path = header().trace_paths[header().last_mark().part % 2].get();
        outcome.spool_path = spool_.path();
        return;
    }
    outcome.trace_path = writer.path();
    if (const int error = drain_.error()) {
        // The spool keeps what the file could not take; a later reader finishes the trace.
        outcome.error = reason_of(error).text;
        outcome.lost_lines += waiting_events(spool_.memory(), spool_.used_bytes());
        outcome.spool_path = spool_.place();
    }
    if (outcome.error.empty() && outcome.spoilt_lines)
        outcome.error = "a file of it was removed or cut while it was written";
}

}  // namespace dftrace
