// Recording from C++ in the way in which the Python bindings do.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "dftrace/recording/runtime.hpp"
#include "dftrace/text/names.hpp"
#include "trace_reader.hpp"

// The name of spans or events; made known to each session once.
class EventName {
  public:
    EventName(std::string_view category, std::string_view name)
        : number_(dftrace::intern_name(category, name)) {}
    std::uint32_t in(dftrace::Thread& thread) {
        if (defined_.load(std::memory_order_acquire) != thread.generation) {
            thread.session->define_names(number_);
            defined_.store(thread.generation, std::memory_order_release);
        }
        return number_;
    }

  private:
    std::uint32_t number_;
    std::atomic<std::uint64_t> defined_{0};
};

struct SpanEnd {
    std::uint32_t error = 0;
    std::uint64_t count = 0;
    std::uint8_t flags = 0;
};

// A span from construction to `close`, at the latest to the end of the scope.
class SpanScope {
  public:
    explicit SpanScope(EventName& name, std::uint32_t args = 0) : args_(args) {
        dftrace::Thread* thread = dftrace::recording_thread();
        if (!thread) {
            dftrace::count_event_without_thread();
            return;
        }
        node_ = name.in(*thread);
        const dftrace::OpenSpan* span = thread->push(node_, args);
        generation_ = thread->generation;
        id_ = span->id;
        start_ = span->start;
        parent_ = span->parent;
        level_ = span->level;
    }
    ~SpanScope() { close(); }
    SpanScope(const SpanScope&) = delete;
    SpanScope& operator=(const SpanScope&) = delete;

    // Ends and records the span; true if the record is stored.
    bool close(const SpanEnd& how = {}) {
        dftrace::Thread* thread = dftrace::recording_thread();
        const bool ours = thread && generation_ && thread->generation == generation_;
        generation_ = 0;
        if (!ours) return false;
        std::uint8_t flags = how.flags;
        if (!thread->depth || !thread->pop(id_)) flags |= dftrace::RecordFlag::overlaps;
        dftrace::Record* record = thread->reserve();
        if (!record) return false;
        *record = {};
        record->start = start_;
        record->end = thread->tick();
        record->id = id_;
        record->parent = parent_;
        record->node = node_;
        record->args = args_;
        record->error = how.error;
        record->value = how.count;
        record->level = level_;
        record->kind = dftrace::Kind::span;
        record->flags = flags;
        thread->commit();
        return true;
    }
    // Leaves the span open for good, as a thread that is killed inside of it.
    void leak() noexcept { generation_ = 0; }
    bool recording() const noexcept { return generation_ != 0; }
    std::uint64_t id() const noexcept { return id_; }

  private:
    std::uint64_t generation_ = 0;
    std::uint64_t id_ = 0;
    std::uint64_t start_ = 0;
    std::uint64_t parent_ = 0;
    std::uint32_t node_ = 0;
    std::uint32_t args_ = 0;
    std::uint16_t level_ = 0;
};

// How many of so many spans, one behind the other, are stored.
inline std::uint64_t record_spans(EventName& name, std::uint64_t count) {
    std::uint64_t stored = 0;
    for (std::uint64_t i = 0; i < count; ++i) stored += SpanScope(name).close();
    return stored;
}

// One record of this moment with arguments of its own; true if it is stored.
inline bool record_now(dftrace::Kind kind, EventName& name, std::string_view members = {},
                       std::uint64_t value = 0) {
    dftrace::Thread* thread = dftrace::recording_thread();
    if (!thread) {
        dftrace::count_event_without_thread();
        return false;
    }
    const std::uint32_t node = name.in(*thread);
    const std::uint32_t args = thread->session->put_arguments(members).value_or(0);
    const dftrace::OpenSpan* around = thread->top();
    dftrace::Record* record = thread->reserve();
    if (record) {
        *record = {};
        record->start = thread->tick();
        record->id = thread->new_id();
        record->parent = around ? around->id : 0;
        record->level = static_cast<std::uint16_t>(around ? around->level + 1 : 1);
        record->node = node;
        record->args = args;
        record->value = value;
        record->kind = kind;
        thread->commit();
    }
    thread->session->release_arguments(args);
    return record != nullptr;
}

// The run that is on, ended; its trace is complete.
struct Finished {
    dftrace::Outcome outcome;
    Trace trace;
    Footer footer;
};
inline Finished finished(const dftrace::Ending& ending = {"finalize"}) {
    const dftrace::Outcome outcome = dftrace::finish_run(ending);
    const Trace trace = read_trace(outcome.trace_path);
    return {outcome, trace, check_complete(trace, ending.how)};
}
