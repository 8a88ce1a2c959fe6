// The times of a file by the clock of another.
#pragma once

#include <cstddef>
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
    // What was recorded after a clock was set moves by its own piece alone, also where that shows less at its
    // beginning than the piece before it: no event lies between, since the clock went over those times.
    explicit ShownClock(std::vector<ClockPiece> pieces = {});

    // Never before 0, and within a piece never less for a later time. `ns` is less than `most_ns`.
    std::int64_t of(std::int64_t ns) const noexcept;
    // When what began at `start` is shown to end. What the clock was set during has by both pieces the time
    // that it took; where these say more than the file, or nothing is left, it keeps its duration.
    std::int64_t end_of(std::int64_t start, std::int64_t duration) const noexcept;
    // All times move by the same, so that durations stay as they are.
    bool keeps_durations() const noexcept {
        return pieces_.size() < 2 && (pieces_.empty() || pieces_[0].rate == 0);
    }

  private:
    std::size_t piece_of(std::int64_t ns) const noexcept;  // there is one

    std::vector<ClockPiece> pieces_;
};

}  // namespace dftrace
