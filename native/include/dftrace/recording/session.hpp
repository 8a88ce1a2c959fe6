// One process's recording: its spool, and what threads and the drain thread do with it.
//
// Locks are taken in this order, and one that stands further down is never held while one above is asked
// for. What each guards is said where it is declared.
//
//   Run::finishing              a run is being completed (runtime.cpp)
//   Run::mutex                  the run that is on; a session is made under it, and threads come and go
//   Run::sessions_mutex         the list by which a forked child finds all sessions
//   BlobStore::lanes_mutex_     tracks with a name; its holder may store a record
//   Stream::looking_            the drain thread looks at units; a thread only tries it
//   ThreadRegistry::mutex_      the threads' states
//   BlobStore::mutex_           names and arguments
//   the mutex of names          their texts, by number (text/names.cpp)
//   KeptUnits::mutex_           the full units of a flight recorder
//   Spool::mutex_               the free units
//   Drain::mutex_               what the drain thread is asked for, and how far it is
//   the mutex of ticks          held while stacks are read, and around a fork (sampler.cpp); nothing is asked
//                               for under it
//   TraceParts::written_mutex_  what is in the files
//
// In a forked child only those of the run, and that of the names, are made anew: the parent's sessions are
// left behind with all of theirs, whatever their state.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dftrace/recording/blob_store.hpp"
#include "dftrace/recording/drain.hpp"
#include "dftrace/recording/record_flow.hpp"
#include "dftrace/recording/retention.hpp"
#include "dftrace/recording/sampler.hpp"
#include "dftrace/recording/thread_registry.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/writing/outcome.hpp"

namespace dftrace {

class Session {
  public:
    // Creates the spool and starts the drain thread; throws std::runtime_error.
    Session(const TraceSettings& settings, std::uint64_t generation, std::uint32_t parent_pid);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    std::uint64_t generation() const noexcept { return generation_; }

    // How long a thread that is refused a state has waited, and for what.
    struct Patience {
        std::uint64_t enough_passes = 0;
        std::uint64_t given_back = 0;
    };
    // The calling thread's recording state, or nullptr when there is no room for it by now.
    Thread* attach(std::uint32_t tid, std::string_view name) noexcept;
    // Where threads are to wait for room: a while, until what threads of before held is written. False where
    // that will not help, for those that live hold all there is.
    bool wait_to_attach(Patience& patience) noexcept;
    // The state of a track that is no thread's: its spans begin on one thread and end on another, and are
    // among its tasks' meanwhile. nullptr when there is no room for it. The caller must hold off all
    // recording threads (the bindings do: they hold the GIL), also while it records there.
    Thread* track_apart(std::uint32_t name) noexcept;
    // The thread is over.
    void detach(Thread* thread) { retention_->thread_over(*thread); }
    // The caller must hold off all recording threads (the bindings do: they hold the GIL).
    void remove_open_elsewhere(const Thread& thread, std::uint64_t id) noexcept {
        threads_.remove_open_elsewhere(thread, id);
    }
    std::uint64_t new_ids(std::uint64_t count) noexcept { return threads_.new_ids(count); }
    // The unit that the thread goes on in, after one that is full; nullptr, and a record counted as dropped,
    // where there is none.
    UnitHeader* next_unit(Thread& thread) noexcept;

    void define_names(std::uint32_t upto) noexcept { blobs_.define_names(upto); }
    // Stores a snapshot of arguments, in place of another one, which is released and then 0. Nothing where
    // there is no room by now: what would bear them is to be dropped, by the caller. 0 where they would take
    // too much of it ever: counted as sanitised, for an event is worth more than what it says of itself.
    std::optional<std::uint32_t> put_arguments(std::string_view json_members,
                                               std::uint32_t& instead_of) noexcept;
    std::optional<std::uint32_t> put_arguments(std::string_view json_members) noexcept {
        std::uint32_t none = 0;
        return put_arguments(json_members, none);
    }
    void count_dropped() noexcept { header().dropped.fetch_add(1, std::memory_order_relaxed); }
    // Values and keys of an event that is recorded.
    void count_sanitised(std::uint64_t values) noexcept {
        if (values) header().args_sanitised.fetch_add(values, std::memory_order_relaxed);
    }
    void release_arguments(std::uint32_t id) noexcept { blobs_.release_arguments(id); }
    std::uint32_t new_lane() noexcept { return blobs_.new_lane(); }
    std::uint32_t lane_named(Thread& thread, std::uint32_t name) noexcept {
        return blobs_.lane_named(thread, name);
    }

    void wake(bool write_out = false) { drain_.wake(write_out); }
    void tell_others_every(std::uint32_t ms) { drain_.tell_others_every(ms); }
    int flush(bool (*interruption)() = nullptr, std::chrono::milliseconds limit = {}) {
        return dump("flush", interruption, limit);
    }
    int dump(std::string_view reason, bool (*interruption)() = nullptr,
             std::chrono::milliseconds limit = {}) {
        if (sampler_) sampler_->store_now();
        return drain_.dump(reason, interruption, limit);
    }
    // Ends everything, writes the footer, and tells what became of it all. Where there is no memory for that
    // it throws std::bad_alloc: all numbers, and whether the drain thread hangs, are told nonetheless.
    void finish(Ending ending, Outcome& outcome);

    // In a forked child: lets go of the parent's spool, trace and marker. Locks may be held by threads that
    // do not exist here, so the object itself is leaked on purpose.
    void abandon_in_child() noexcept {
        spool_.abandon();
        drain_.abandon_in_child();
    }

    // When it is finished, and complete.
    std::unique_ptr<WrittenEnd> take_written_end() noexcept {
        return flow_.writer().blocks().take_written_end();
    }

    Written written() { return flow_.writer().parts().written(); }
    SpoolHeader& header() noexcept { return spool_.header(); }
    const std::string& spool_path() const noexcept { return spool_.path(); }
    std::uint64_t spool_bytes_used() noexcept { return spool_.used_bytes(); }

  private:
    // Has the drain thread write out, once for what was refused while so many units had come back.
    void ask_for_room(std::uint64_t given_back) noexcept;

    void begin_sampling();

    // Takes the spool away again where its session does not come about.
    struct UnlessBegun {
        Spool& spool;
        bool begun = false;
        ~UnlessBegun() {
            if (!begun) spool.unlink();
        }
    };

    // Each is used by those below it.
    const TraceSettings settings_;
    const std::uint64_t generation_;
    ClockMap clock_;  // the drain thread's, once it runs
    Spool spool_;
    UnlessBegun unless_begun_{spool_};
    const std::unique_ptr<Retention> retention_;
    ThreadRegistry threads_;
    BlobStore blobs_;
    RecordFlow flow_;
    Drain drain_;
    std::optional<Sampler> sampler_;
    std::vector<std::pair<std::uint32_t, Thread*>> tracks_apart_;  // by number of the name
    std::atomic<std::size_t> too_many_threads_{SIZE_MAX};  // so many live ones left no room for one more
    std::atomic<std::uint64_t> asked_for_room_{0};         // when the drain thread was asked for it
};

}  // namespace dftrace
