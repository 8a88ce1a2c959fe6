// The last records stay in the spool, as many as fit or as are young enough, and are written when asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dftrace/recording/kept_units.hpp"
#include "dftrace/recording/retention.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

class FlightRecorder final : public Retention {
  public:
    // `memory_ns`: what is older is let go; 0: all that fits is kept.
    FlightRecorder(Spool& spool, Wake wake, std::uint64_t memory_ns)
        : Retention(spool, std::move(wake)), kept_(spool), memory_ns_(memory_ns) {}

    // If need be, a unit of the oldest records that are kept.
    UnitHeader* take(UnitKind kind, std::uint32_t owner, std::uint32_t units = 1,
                     std::uint64_t before = 0) override;
    void thread_over(Thread& thread) noexcept override;
    std::chrono::milliseconds interval(std::chrono::milliseconds wanted) const noexcept override;
    std::optional<int> turn(RecordFlow& flow, bool write_out, std::string reason) override;
    int end(RecordFlow& flow, const Ending& ending) override;
    std::uint64_t release_moment() const noexcept override { return tick_source.now(); }
    // Records that name a snapshot ended before its release was seen: they are let go, or in the file.
    std::uint64_t settled_before() noexcept override;

  private:
    UnitHeader* same_unit_again(Thread& thread) noexcept override;
    void unit_left(Thread& thread) noexcept override;

    // Looks after what is kept; writes nothing.
    void look_after_kept(RecordFlow& flow);
    void ask_for_dump(std::string reason, std::string_view details = {});
    void see_open_spans(RecordFlow& flow);
    int note_dump(RecordFlow& flow, std::uint64_t before);
    int write_kept(RecordFlow& flow, bool run_goes_on);
    // At the end: nobody asked for these. How many they are, without those that a dump told of.
    std::uint64_t let_go_of_kept(RecordFlow& flow);
    std::uint64_t oldest_wanted_tick(const RecordFlow& flow) noexcept;

    KeptUnits kept_;
    const std::uint64_t memory_ns_;
    // All of these are the drain thread's own.
    bool dump_due_ = false;
    std::uint64_t dump_from_ = 0;      // tick from which on the dump that is due writes
    std::uint64_t dumped_before_ = 0;  // tick before which every record is in the trace or was let go
    std::string dump_reason_;          // of the last dump that was asked for
    std::string dump_details_;         // JSON members about it
    bool dump_noted_ = false;          // its instant is formatted
    Track own_track_;                  // what the recorder says of itself
};

}  // namespace dftrace
