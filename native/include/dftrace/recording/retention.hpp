// How long records stay in the spool, and when they are written: the two ways are in `retention.cpp` and
// `flight_recorder.cpp`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dftrace/recording/unit_supply.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/writing/line_formatter.hpp"

namespace dftrace {

class RecordFlow;
struct Thread;
struct Track;

// Several may ask for one dump: their reasons, each once, and no more than fit a line. False where there is
// no memory for it, which is then left out.
bool add_reason(std::string& reasons, std::string_view more) noexcept;

// Who asks for a dump: why, empty where nobody does, and where threads stand (see `stacks_now`).
struct DumpRequest {
    std::string reason;
    std::string stacks;
};

class Retention : public UnitSupply {
  public:
    // Asks the drain thread to look; with true, to write what there is now.
    using Wake = std::function<void(bool)>;

    // The threads' side: each calls it for itself.

    // The unit that the thread stores in from now on, behind its own, which is full; nullptr for none.
    UnitHeader* next_unit(Thread& thread) noexcept;
    // The thread is over: its remaining records are written, its units go back.
    virtual void thread_over(Thread& thread) noexcept = 0;

    // The drain thread's side.

    // How often it has to look at least, where records are to be in the file within `wanted`.
    virtual std::chrono::milliseconds interval(std::chrono::milliseconds wanted) const noexcept = 0;
    // One turn: 0, the errno of what could not be written, or nothing where nothing was tried that shows
    // whether writing works.
    virtual std::optional<int> turn(RecordFlow& flow, bool write_out, DumpRequest dump) = 0;
    // Everything that is still to be told, and the footer. 0 or an errno.
    virtual int end(RecordFlow& flow, const Ending& ending) = 0;
    // A snapshot of arguments whose release is seen at one moment can be forgotten once that lies before
    // `settled_before`: then every record that names it is written or let go.
    virtual std::uint64_t release_moment() const noexcept = 0;
    virtual std::uint64_t settled_before() noexcept = 0;

  protected:
    Retention(Spool& spool, Wake wake) : UnitSupply(spool), wake_(std::move(wake)) {}

    // The thread's full unit once more, for want of another; nullptr where it has to stay as it is.
    virtual UnitHeader* same_unit_again(Thread& thread) noexcept = 0;
    // The thread goes on from its full unit to the next one.
    virtual void unit_left(Thread& thread) noexcept = 0;

    const Wake wake_;
};

// What the trace tells of a dump; `more`: JSON members. 0 or an errno.
int note_dump(RecordFlow& flow, Track& track, std::string_view reason, std::string_view more,
              std::uint64_t at_tick);

// The way that the settings ask for.
std::unique_ptr<Retention> make_retention(const TraceSettings& settings, Spool& spool, Retention::Wake wake);

}  // namespace dftrace
