// The traced thread's side: open spans and records, without a lock, a system call or an allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "dftrace/spool/record.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/system/clock.hpp"

namespace dftrace {

class Session;
struct Source;

// Everything one thread needs to record. Reached through one thread-local pointer: large
// thread-local objects keep a shared library from loading ("static TLS block").
struct Thread {
    std::uint64_t generation = 0;  // the session this belongs to
    Record* cursor = nullptr;
    Record* limit = nullptr;
    std::atomic<std::uint32_t>* committed = nullptr;
    std::uint32_t count = 0;  // records in the current unit
    std::uint32_t depth = 0;  // open spans
    ThreadBlock* block = nullptr;
    std::uint64_t last_tick = 0;
    std::uint64_t next_id = 0;
    std::uint64_t end_id = 0;
    Session* session = nullptr;
    Source* source = nullptr;  // the drain thread's view of this thread
    UnitHeader* unit = nullptr;
    std::uint32_t number = 0;
    std::uint64_t refused_at = 0;      // the session's count of freed units when a unit was last refused
    std::vector<OpenSpan> deep;        // open spans beyond the block's stack
    std::vector<std::uint32_t> lanes;  // task lanes of this thread that no open span uses

    std::uint64_t tick() noexcept {
        const std::uint64_t now = tick_source.now();
        const std::uint64_t least = last_tick + tick_source.min_step;
        return last_tick = now > least ? now : least;
    }

    std::uint64_t new_id() noexcept {
        if (next_id == end_id) [[unlikely]]
            refill_ids();
        return next_id++;
    }

    OpenSpan* top() noexcept {
        if (depth == 0) return nullptr;
        return depth <= max_open_spans ? &block->open[depth - 1] : &deep[depth - 1 - max_open_spans];
    }

    static std::uint16_t next_level(const OpenSpan* parent) noexcept {
        const unsigned level = parent ? parent->level + 1u : 1u;
        return static_cast<std::uint16_t>(level < 65535 ? level : 65535);
    }

    // Opens a span inside the innermost open one. The returned entry is valid until the next call; it
    // is nullptr, and the span counted as dropped, when there is no memory for it.
    OpenSpan* push(std::uint32_t node, std::uint32_t args) noexcept {
        const OpenSpan* parent = top();
        const std::uint64_t parent_id = parent ? parent->id : 0;
        const std::uint16_t level = next_level(parent);
        OpenSpan* span = depth < max_open_spans ? &block->open[depth] : push_deep();
        if (!span) [[unlikely]]
            return nullptr;
        span->id = new_id();
        span->parent = parent_id;
        span->node = node;
        span->args = args;
        span->lane = 0;
        span->level = level;
        span->live = 1;
        span->start = tick();
        block->depth.store(++depth, std::memory_order_release);
        return span;
    }

    // Takes `id` off the stack; true if it was the innermost.
    bool pop(std::uint64_t id) noexcept {
        if (top()->id == id) [[likely]] {
            if (depth > max_open_spans) deep.pop_back();
            block->depth.store(--depth, std::memory_order_release);
            return true;
        }
        remove(id);
        return false;
    }

    // The place for one more record, or nullptr when it has to be dropped (which is then counted).
    Record* reserve() noexcept {
        if (cursor == limit) [[unlikely]]
            if (!next_unit()) return nullptr;
        return cursor;
    }
    void commit() noexcept {
        ++cursor;
        committed->store(++count, std::memory_order_release);
    }

    // Stores in this unit from now on.
    void go_on_in(UnitHeader* fresh) noexcept;
    void refill_ids() noexcept;
    OpenSpan* push_deep() noexcept;
    void remove(std::uint64_t id) noexcept;
    bool next_unit() noexcept;

    // Records what a lane is called. `name` 0: one for tasks, which the writer numbers.
    void announce_lane(std::uint32_t lane, std::uint32_t name) noexcept;
    // An asyncio task's track: the lowest that no open span uses.
    std::uint32_t take_lane() noexcept;
    void give_lane(std::uint32_t lane) noexcept;
    // Spans of tasks stand in slots of their own, since they end in any order. Slot number, or -1
    // when all are taken (the span is then only not visible from outside while it is open).
    int take_task_slot(const OpenSpan& span) noexcept;
    void give_task_slot(int slot) noexcept;
};

}  // namespace dftrace
