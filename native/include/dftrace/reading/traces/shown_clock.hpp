// The times of a file by the clock of another.
#pragma once

#include <cstdint>
#include <vector>

namespace dftrace {

// From a time of the file on, `t` is shown as `t + shift - rate * (t - at)`, in ns.
struct ClockPiece {
    std::int64_t from = 0;
    std::int64_t shift = 0;
    double rate = 0;
    std::int64_t at = 0;
};

class ShownClock {
  public:
    // Beyond these times a clock has no meaning, and sums of them fit into 64 bits.
    static constexpr std::int64_t most_ns = std::int64_t{1} << 61;

    // Pieces in the order of their times, the first for all times before, too. None: times stay as they are.
    // Where a piece would go back behind what is before it, it stands still: what lies within something else
    // has to stay there.
    explicit ShownClock(std::vector<ClockPiece> pieces = {});

    // Never before 0, and never less for a later time. `ns` is less than `most_ns`.
    std::int64_t of(std::int64_t ns) const noexcept;
    // All times move by the same, so that durations stay as they are.
    bool keeps_durations() const noexcept {
        return pieces_.size() < 2 && (pieces_.empty() || pieces_[0].rate == 0);
    }

  private:
    std::vector<ClockPiece> pieces_;
    std::vector<std::int64_t> least_;  // what each piece shows at least
};

}  // namespace dftrace
