// One process's recording: its spool, its threads, and the drain thread that writes the trace.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dftrace/recording/kept_units.hpp"
#include "dftrace/recording/thread.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/spool/tables.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

// Several may ask for one dump: their reasons, each once.
void add_reason(std::string& reasons, std::string_view more);

// What became of a run in this process.
struct Outcome {
    std::string trace_path;          // empty if nothing was written
    std::string spool_path;          // not empty if the spool had to be kept
    std::string spool_refusal;       // why it could not grow when it should, empty if it always could
    std::string error;               // why the trace is not complete, empty if it is
    std::uint64_t events = 0;        // lines of events in the trace file
    std::uint64_t lost_lines = 0;    // events that are not in the trace file: the spool has them, or
    std::uint64_t spoilt_lines = 0;  // ... they were in a file of it that somebody removed or cut
    bool marked = false;             // a marker tells where the spool is
    std::uint64_t spool_bytes = 0;   // that the spool had grown to
    bool abandoned = false;          // the file system does not answer: the session has to stay
    Losses losses;
};

class Session {
  public:
    // Creates the spool and starts the drain thread; throws std::system_error.
    Session(const TraceSettings& settings, std::uint64_t generation, std::uint32_t parent_pid,
            std::uint64_t epoch_offset_ns);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    std::uint64_t generation() const noexcept { return generation_; }

    // The calling thread's recording state, or nullptr when there is no room for it.
    Thread* attach(std::uint32_t tid, std::string_view name);
    // The thread is over: its remaining records are written, its units go back.
    void detach(Thread* thread);

    // Makes names [0, `upto`] known to the spool.
    void define_names(std::uint32_t upto) noexcept;
    // Stores a snapshot of arguments; 0 when there is no room (counted as sanitised).
    std::uint32_t put_arguments(std::string_view json_members) noexcept;
    void release_arguments(std::uint32_t id) noexcept;

    // Asks the drain thread to write what there is now.
    void wake(bool write_out = false);
    // Blocks until everything recorded before the call is in the file (or failed to be written). 0 or an
    // errno. `interruption` is asked now and then; when it says so, the call ends with EINTR. It may end
    // the run. Beyond `limit`, 0 for none, or where `finish` has given the file up, ETIMEDOUT.
    int flush(bool (*interruption)() = nullptr, std::chrono::milliseconds limit = {});
    // As `flush`; a flight recorder writes what it holds, and `reason` beside it.
    int dump(std::string_view reason, bool (*interruption)() = nullptr, std::chrono::milliseconds limit = {});
    // Ends everything and writes the footer.
    Outcome finish(const Ending& ending);

    // In a forked child: lets go of the parent's spool. Locks may be held by threads that do not
    // exist here, so the object itself is leaked on purpose.
    void abandon_in_child() noexcept { spool_.abandon(); }

    // Takes an open span off the stack of whichever other thread began it. The caller must hold
    // off all recording threads (the bindings do: they hold the GIL).
    void remove_open_elsewhere(const Thread& thread, std::uint64_t id) noexcept;

    UnitHeader* acquire_ring_unit(Thread& thread) noexcept;
    SpoolHeader& header() noexcept { return spool_.header(); }
    std::uint64_t units_freed() const noexcept { return units_freed_.load(std::memory_order_relaxed); }
    std::uint64_t new_ids(std::uint64_t count) noexcept {
        return next_id_.fetch_add(count, std::memory_order_relaxed);
    }
    std::uint32_t new_lane() noexcept { return next_lane_.fetch_add(1, std::memory_order_relaxed); }
    // The lane of a track that bears a name of its own, made when it is first asked for.
    std::uint32_t lane_named(Thread& thread, std::uint32_t name) noexcept;
    const std::string& spool_path() const noexcept { return spool_.path(); }
    std::uint64_t spool_bytes_used() noexcept { return spool_.used_bytes(); }

  private:
    void drain_loop();
    // One turn of the drain thread; 0 or the errno of what could not be written.
    int turn(bool write_out, std::string_view reason);
    std::chrono::milliseconds interval() const noexcept;
    void follow_clock();
    void take_in_new_sources();
    void tell_of_failure(int error);
    // Flight recorder: looks after what is kept; writes nothing.
    void look_after_kept();
    void ask_for_dump(std::string_view reason, std::string_view details = {});
    void see_open_spans();
    int write_kept(bool run_goes_on);
    // At the end: nobody asked for these. How many they are, without those that a dump told of.
    std::uint64_t let_go_of_kept();
    std::uint64_t oldest_wanted_tick() noexcept;
    // A unit, if need be the oldest that a flight recorder keeps.
    UnitHeader* take_unit(UnitKind kind, std::uint32_t owner, std::uint32_t units = 1);
    int end() noexcept;
    // Formats everything committed so far. False when the file cannot be written.
    bool pass();
    bool drain(Source& source);
    void read_blobs();
    void apply_releases();
    // The snapshots that open spans name; false if not all of them can be seen.
    bool snapshots_of_open_spans(std::set<std::uint32_t>& named);
    void unit_durable(UnitHeader* unit, std::uint32_t scan);
    void forget_releases(std::size_t count);
    void drop_ended_sources();
    bool append_blob(std::vector<UnitHeader*>& chain, UnitKind unit_kind, BlobKind kind, std::uint32_t id,
                     std::string_view text);
    void free_unit(UnitHeader* unit);
    UnitHeader* reuse_own_unit(Thread& thread) noexcept;
    template <typename Work>
    bool with_blobs(Work work) noexcept;
    void define_names_locked(std::uint32_t upto);
    void write_unfinished();
    int write_rest(Ending ending);

    void start_drain_thread();
    void tell_of_removal();

    // Takes the spool away again where its session does not come about.
    struct UnlessBegun {
        Spool& spool;
        bool begun = false;
        ~UnlessBegun() {
            if (!begun) spool.unlink();
        }
    };

    const TraceSettings settings_;
    const std::uint64_t generation_;
    SpoolMarker marker_;  // tells readers of the trace directory where the spool lies
    ClockMap clock_;
    Spool spool_;
    UnlessBegun unless_begun_{spool_};
    TraceWriter writer_;
    BlobTables tables_;

    std::mutex blob_mutex_;
    std::vector<UnitHeader*> name_units_;
    std::vector<UnitHeader*> argument_units_;
    std::uint32_t names_defined_ = 0;
    std::uint32_t names_wanted_ = 0;  // more than are defined when there was no room
    std::uint32_t next_argument_ = 1;

    std::mutex named_lanes_mutex_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> named_lanes_;  // name, lane: a handful

    std::mutex threads_mutex_;
    std::vector<std::unique_ptr<Thread>> threads_;
    std::vector<std::unique_ptr<Source>> new_sources_;
    std::vector<std::unique_ptr<Source>> sources_;  // the drain thread's own
    std::uint32_t next_thread_ = 1;
    std::atomic<std::uint32_t> ended_threads_{0};

    std::mutex pass_mutex_;  // held while the drain thread looks at units

    std::mutex wake_mutex_;
    std::condition_variable wake_;
    std::condition_variable passed_;
    bool stop_ = false;
    bool write_out_ = false;
    std::string asked_reason_;  // why a dump is asked for, by all who did
    bool woken_ = false;
    std::uint64_t passes_ = 0;
    int write_error_ = 0;  // errno of the last pass
    std::atomic<bool> writer_failing_{false};

    // When it was seen, by number of pass or, in a flight recorder, by tick; id.
    std::vector<std::pair<std::uint64_t, std::uint32_t>> releases_;
    KeptUnits kept_;
    bool dump_due_ = false;
    std::uint64_t dump_from_ = 0;      // tick from which on the dump that is due writes
    std::uint64_t dumped_before_ = 0;  // tick before which every record is in the trace or was let go
    std::string dump_reason_;          // of the last dump that was asked for
    std::string dump_details_;         // JSON members about it
    bool dump_noted_ = false;          // its instant is formatted
    Track own_track_;                  // what the recorder says of itself
    bool told_of_failure_ = false;
    bool told_of_removal_ = false;
    bool marker_tried_ = false;
    Ending ending_;  // set before `stop_`
    bool drain_ended_ = false;
    bool abandoned_ = false;  // the drain thread hangs, and the end does not wait for it
    std::atomic<std::uint64_t> units_freed_{0};
    std::atomic<std::uint64_t> next_id_{1};
    std::atomic<std::uint32_t> next_lane_{0};
    std::thread drain_thread_;
};

}  // namespace dftrace
