// The rare paths of the traced thread.
#include "dftrace/recording/thread.hpp"

#include <algorithm>
#include <new>

#include "dftrace/recording/session.hpp"

namespace dftrace {

void Thread::refill_ids() noexcept {
    constexpr std::uint64_t block_of_ids = 4096;
    next_id = session->new_ids(block_of_ids);
    end_id = next_id + block_of_ids;
}

OpenSpan* Thread::push_deep() noexcept {
    try {
        deep.emplace_back();
        return &deep.back();
    } catch (const std::bad_alloc&) {
        session->header().dropped.fetch_add(1, std::memory_order_relaxed);
        return nullptr;
    }
}

void Thread::remove(std::uint64_t id) noexcept {
    const auto at = [this](std::uint32_t i) -> OpenSpan& {
        return i < max_open_spans ? block->open[i] : deep[i - max_open_spans];
    };
    std::uint32_t found = depth;
    while (found > 0 && at(found - 1).id != id) --found;
    if (found == 0) return;
    for (std::uint32_t i = found; i < depth; ++i) at(i - 1) = at(i);
    if (depth > max_open_spans) deep.pop_back();
    block->depth.store(--depth, std::memory_order_release);
}

bool Thread::next_unit() noexcept {
    UnitHeader* fresh = session->next_unit(*this);
    if (!fresh) return false;
    go_on_in(fresh);
    return true;
}

void Thread::go_on_in(UnitHeader* fresh) noexcept {
    unit = fresh;
    cursor = records_of(fresh);
    limit = cursor + fresh->capacity;
    committed = &fresh->committed;
    count = 0;
}

void Thread::announce_lane(std::uint32_t lane, std::uint32_t name) noexcept {
    Record* r = reserve();
    if (!r) {
        session->header().dropped.fetch_sub(1, std::memory_order_relaxed);  // it was no event
        return;
    }
    *r = Record{};
    r->kind = Kind::lane_name;
    r->lane = lane;
    r->node = name;
    commit();
}

std::uint32_t Thread::take_lane() noexcept {
    // Free lanes are kept sorted so that a loop of short tasks stays on few tracks.
    if (!lanes.empty()) {
        const auto lowest = std::min_element(lanes.begin(), lanes.end());
        const std::uint32_t lane = *lowest;
        lanes.erase(lowest);
        return lane;
    }
    const std::uint32_t lane = first_task_lane + session->new_lane();
    announce_lane(lane, 0);
    return lane;
}

void Thread::give_lane(std::uint32_t lane) noexcept {
    try {
        lanes.push_back(lane);
    } catch (const std::bad_alloc&) {
        // The next task takes a new one.
    }
}

int Thread::take_task_slot(const OpenSpan& span) noexcept {
    for (std::uint32_t i = 0; i < max_open_task_spans; ++i) {
        if (block->tasks[i].live) continue;
        block->tasks[i] = span;
        if (i >= block->task_slots) block->task_slots = i + 1;
        return static_cast<int>(i);
    }
    return -1;
}

void Thread::give_task_slot(int slot) noexcept {
    if (slot < 0) return;
    block->tasks[slot].live = 0;
    block->tasks[slot].args = 0;
}

}  // namespace dftrace
