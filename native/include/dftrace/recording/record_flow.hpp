// The drain thread's work: from the threads' units to the trace file.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "dftrace/recording/blob_store.hpp"
#include "dftrace/recording/retention.hpp"
#include "dftrace/recording/thread_registry.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/spool/tables.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

// Units of the spool that are ready before a thread needs them, for as long as one is fast.
//
// A page that nobody has touched yet takes longer than what is stored on it. So the drain thread, in between
// of all that it does, sees how fast the spool grows, and makes room ahead of that. What is not needed any
// more is given back: a thread that rests takes no memory for it.
//
// The drain thread's own.
class UnitsAhead {
  public:
    using Clock = std::chrono::steady_clock;

    explicit UnitsAhead(Spool& spool, Clock::time_point now = Clock::now()) noexcept
        : spool_(spool), grown_at_(now) {}

    // To be called often, the more so while a thread is fast.
    void keep_up(Clock::time_point now = Clock::now()) noexcept;
    // When it is to be called at the latest, should nothing else happen.
    Clock::time_point look_again() const noexcept;

    static constexpr std::uint32_t most = 128;
    // As many are ready as threads take in this time, in which a block may be compressed. Who takes less than
    // one makes it by himself, which is no part of his time to speak of.
    static constexpr std::chrono::milliseconds reach{8};
    // No new unit for so long, and what is ready is given back.
    static constexpr std::chrono::milliseconds rest{100};

  private:
    // Which every run begins with: the header, a thread's first unit, names, arguments.
    static constexpr std::uint32_t first_units = 4;

    Spool& spool_;
    std::uint32_t units_ = first_units;  // in use, or once used, when it was looked at
    std::uint32_t wanted_ = 0;
    Clock::time_point grown_at_;
};

// No lock: all of it belongs to the drain thread.
class RecordFlow {
  public:
    // `clock` is the one that the spool's header has begun with.
    RecordFlow(const TraceSettings& settings, Spool& spool, ClockMap& clock, std::uint32_t parent_pid,
               ThreadRegistry& threads, BlobStore& blobs, Retention& retention);

    // Formats everything committed so far. 0, or the errno for which the file cannot be written.
    int pass();
    void follow_clock();
    void read_blobs();
    // Forgets the snapshots that were released, as far as nothing can name them any more.
    void apply_releases();
    void drop_ended_sources();
    void write_unfinished();

    Spool& spool() noexcept { return spool_; }
    ThreadRegistry& threads() noexcept { return threads_; }
    std::vector<std::unique_ptr<Source>>& sources() noexcept { return threads_.sources(); }
    TraceWriter& writer() noexcept { return writer_; }
    const BlobTables& tables() const noexcept { return tables_; }
    const ClockMap& clock() const noexcept { return clock_; }
    const UnitsAhead& ahead() const noexcept { return ahead_; }

  private:
    int drain(Source& source);
    void unit_durable(UnitHeader* unit, std::uint32_t scan);
    // The snapshots that open spans name; false if not all of them can be seen.
    bool snapshots_of_open_spans(std::set<std::uint32_t>& named);

    Spool& spool_;
    UnitsAhead ahead_;
    ClockMap& clock_;
    ThreadRegistry& threads_;
    BlobStore& blobs_;
    Retention& retention_;
    TraceWriter writer_;
    BlobTables tables_;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> releases_;  // moment when it was seen, id
};

}  // namespace dftrace
