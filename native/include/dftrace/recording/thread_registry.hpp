// The threads of a session: the state of each, and what the drain thread sees of it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "dftrace/recording/thread.hpp"
#include "dftrace/recording/unit_supply.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/writing/tracks.hpp"

namespace dftrace {

// The drain thread's view of one thread.
struct Source {
    ThreadBlock* block;
    UnitHeader* unit;        // that comes next
    std::uint32_t scan = 0;  // records of it that are formatted
    UnitHeader* limit_unit = nullptr;
    std::uint32_t limit = 0;
    Track track;
    Thread* thread;
    bool over = false;  // ended before this pass looked
    // Ended, and a flight recorder let go of all its records: its units are no longer its own.
    std::atomic<bool> overwritten{false};
};

// What is asked of a thread from outside.
struct LivingThread {
    std::uint32_t tid;
    bool in_span;  // or in a step
};

class ThreadRegistry {
  public:
    // `session` and its generation stand in the threads' states.
    ThreadRegistry(Session* session, std::uint64_t generation) noexcept
        : session_(session), generation_(generation) {}

    // A state for the calling thread, or nullptr when there is no unit or no memory for it.
    Thread* attach(UnitSupply& units, std::uint32_t tid, std::string_view name) noexcept;
    // How many threads are not over.
    std::size_t living() noexcept;
    // Which these are, without tracks that are no thread's.
    void living(std::vector<LivingThread>& into);
    // Takes an open span off the stack of whichever other thread began it. The caller must hold off all
    // recording threads.
    void remove_open_elsewhere(const Thread& thread, std::uint64_t id) noexcept;
    // The first of so many ids that nobody else gets.
    std::uint64_t new_ids(std::uint64_t count) noexcept {
        return next_id_.fetch_add(count, std::memory_order_relaxed);
    }

    // The drain thread's side.

    // Those known to the drain thread since it last took in new ones.
    std::vector<std::unique_ptr<Source>>& sources() noexcept { return sources_; }
    void take_in_new_sources();
    // Forgets the threads of which `over` says so; then `gone` is told of each.
    template <typename Over, typename Gone>
    void drop(Over over, Gone gone) {
        std::erase_if(sources_, [&](const std::unique_ptr<Source>& source) {
            if (!over(*source)) return false;
            forget(source->thread);
            gone(*source);
            return true;
        });
    }

  private:
    void forget(const Thread* thread);

    Session* const session_;
    const std::uint64_t generation_;
    std::mutex mutex_;  // guards the next three
    std::vector<std::unique_ptr<Thread>> threads_;
    std::vector<std::unique_ptr<Source>> new_sources_;
    std::uint32_t next_thread_ = 1;
    std::vector<std::unique_ptr<Source>> sources_;  // the drain thread's own
    std::atomic<std::uint64_t> next_id_{1};
};

}  // namespace dftrace
