// Lines one after the other, each for its own times.
#include "dftrace/reading/traces/shown_clock.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace dftrace {

namespace {

// Clocks do not run at other rates; what says so is no clock, and would make times fall.
constexpr double most_rate = 0.5;

std::int64_t by(const ClockPiece& piece, std::int64_t ns) noexcept {
    const std::int64_t moved = ns + piece.shift;
    if (piece.rate == 0) return moved;
    return moved - static_cast<std::int64_t>(std::llround(piece.rate * static_cast<double>(ns - piece.at)));
}

}  // namespace

ShownClock::ShownClock(std::vector<ClockPiece> pieces) : pieces_(std::move(pieces)) {
    for (ClockPiece& piece : pieces_) {
        const auto within = [](std::int64_t ns) { return std::clamp(ns, -most_ns, most_ns); };
        piece = {within(piece.from), within(piece.shift), piece.rate, within(piece.at)};
        if (!(std::abs(piece.rate) < most_rate)) piece.rate = 0;
    }
}

std::int64_t ShownClock::of(std::int64_t ns) const noexcept {
    ns = std::clamp(ns, -most_ns, most_ns);
    if (pieces_.empty()) return std::max<std::int64_t>(ns, 0);
    return std::max<std::int64_t>(by(pieces_[piece_of(ns)], ns), 0);
}

std::int64_t ShownClock::end_of(std::int64_t start, std::int64_t duration) const noexcept {
    const std::int64_t begin = of(start);
    if (keeps_durations()) return begin + duration;
    const std::int64_t end = of(start + duration);
    if (piece_of(start) == piece_of(start + duration) || (end > begin && end - begin < duration)) return end;
    return begin + duration;
}

std::size_t ShownClock::piece_of(std::int64_t ns) const noexcept {
    std::size_t i = pieces_.size() - 1;
    while (i > 0 && pieces_[i].from > ns) --i;
    return i;
}

}  // namespace dftrace
