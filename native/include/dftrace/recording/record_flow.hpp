// The drain thread's work: from the threads' units to the trace file.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "dftrace/recording/blob_store.hpp"
#include "dftrace/recording/retention.hpp"
#include "dftrace/recording/thread_registry.hpp"
#include "dftrace/recording/units_ahead.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/tables.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

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
