// The full units that a flight recorder keeps, oldest first, until they are written or used again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "dftrace/recording/source.hpp"
#include "dftrace/spool/spool.hpp"

namespace dftrace {

class KeptUnits {
  public:
    explicit KeptUnits(Spool& spool) : spool_(spool), room_(spool.most_units()), kept_(new Kept[room_]) {}

    // A unit whose thread has gone on to the next one.
    void add(UnitHeader* unit, Source* source) noexcept;
    // The thread ends here, and its last units are as any that are full.
    void add_last(Source* source) noexcept;
    // Lets go of the oldest unit, whose records are lost; false when there is none to let go.
    bool let_go_of_oldest();
    // Lets go of all units whose records ended before `tick`.
    void let_go_before(std::uint64_t tick);
    // Empties the unit that its thread has filled, for want of another; false when it has to stay.
    bool start_over(UnitHeader* unit, Source& source);

    // While a dump reads units, none is let go.
    void hold();
    void resume();

  private:
    struct Kept {
        UnitHeader* unit;
        std::uint64_t sequence;
        Source* source;
    };
    // False when a dump has written it; its source may be gone then.
    bool there(const Kept& kept) noexcept { return spool_.holds(kept.unit, kept.sequence); }
    bool let_go_of_oldest_locked();
    // Counts what of the unit is not in the trace as lost, and everything up to then as incomplete.
    void lose(UnitHeader* unit, Source& source);
    void add_locked(UnitHeader* unit, Source* source) noexcept;

    Kept& kept(std::size_t place) noexcept { return kept_[(oldest_ + place) % room_]; }
    void forget_written() noexcept;

    Spool& spool_;
    const std::size_t room_;
    std::mutex mutex_;  // guards all that follows
    // A ring with room for all units from the beginning on: one that could not be noted would be lost without
    // being counted. Its memory is touched as it fills.
    const std::unique_ptr<Kept[]> kept_;
    std::size_t oldest_ = 0;
    std::size_t count_ = 0;
    bool held_ = false;
};

// The tick of the unit's last record that has one; 0 if none has.
std::uint64_t last_tick_of(UnitHeader* unit) noexcept;
// How many of the unit's records [from, to) are events.
std::uint64_t events_in(UnitHeader* unit, std::uint32_t from, std::uint32_t to) noexcept;

}  // namespace dftrace
