// Threads come and go.
#include "dftrace/recording/thread_registry.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace dftrace {

namespace {

// For one more, which then takes no memory.
template <typename T>
void make_room(std::vector<T>& list) {
    if (list.size() == list.capacity()) list.reserve(std::max<std::size_t>(8, list.size() * 2));
}

}  // namespace

Thread* ThreadRegistry::attach(UnitSupply& units, std::uint32_t tid, std::string_view name) noexcept {
    std::lock_guard lock(mutex_);
    // All memory first: a unit that is taken has a thread, and a source does not outlive its own.
    std::unique_ptr<Thread> thread;
    std::unique_ptr<Source> source;
    try {
        make_room(new_sources_);
        make_room(threads_);
        thread = std::make_unique<Thread>();
        source = std::make_unique<Source>();
        source->track.name = std::string(name);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
    UnitHeader* unit = units.take(UnitKind::thread, next_thread_);
    if (!unit) return nullptr;
    auto* block = reinterpret_cast<ThreadBlock*>(unit);
    block->tid = tid;
    block->ended.store(0, std::memory_order_relaxed);
    block->depth.store(0, std::memory_order_relaxed);
    block->task_slots = 0;
    std::fill(std::begin(block->tasks), std::end(block->tasks), OpenSpan{});
    for (AwaitedSlot& slot : block->awaited) slot.clear();
    std::memset(block->name, 0, sizeof block->name);
    std::memcpy(block->name, name.data(), std::min(name.size(), sizeof block->name - 1));

    thread->generation = generation_;
    thread->block = block;
    thread->session = session_;
    thread->number = next_thread_++;
    thread->unit = unit;
    thread->cursor = records_of(unit);
    thread->limit = thread->cursor + unit->capacity;
    thread->committed = &unit->committed;

    source->block = block;
    source->unit = unit;
    source->thread = thread.get();
    source->track.tid = tid;
    thread->source = source.get();
    new_sources_.push_back(std::move(source));
    threads_.push_back(std::move(thread));
    return threads_.back().get();
}

std::size_t ThreadRegistry::living() noexcept {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(
        threads_, [](const auto& one) { return one->block->ended.load(std::memory_order_relaxed) == 0; }));
}

void ThreadRegistry::living(std::vector<LivingThread>& into) {
    into.clear();
    std::lock_guard lock(mutex_);
    for (const auto& one : threads_) {
        const ThreadBlock& block = *one->block;
        if (block.ended.load(std::memory_order_relaxed) || is_track_apart(block.tid)) continue;
        const bool in_step = std::ranges::any_of(
            block.awaited, [](const AwaitedSlot& slot) { return slot.mark.load(std::memory_order_relaxed); });
        into.push_back({block.tid, in_step || block.depth.load(std::memory_order_relaxed) != 0});
    }
}

void ThreadRegistry::remove_open_elsewhere(const Thread& thread, std::uint64_t id) noexcept {
    std::lock_guard lock(mutex_);
    for (auto& other : threads_)
        if (other.get() != &thread) other->remove(id);
}

void ThreadRegistry::take_in_new_sources() {
    std::lock_guard lock(mutex_);
    sources_.reserve(sources_.size() + new_sources_.size());  // no memory, and nothing has moved
    for (auto& source : new_sources_) sources_.push_back(std::move(source));
    new_sources_.clear();
}

void ThreadRegistry::forget(const Thread* thread) {
    std::lock_guard lock(mutex_);
    std::erase_if(threads_, [&](const auto& known) { return known.get() == thread; });
}

}  // namespace dftrace
