// Lines one after the other, none below the one before it.
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
    std::int64_t least = 0;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        ClockPiece& piece = pieces_[i];
        const auto within = [](std::int64_t ns) { return std::clamp(ns, -most_ns, most_ns); };
        piece = {within(piece.from), within(piece.shift), piece.rate, within(piece.at)};
        if (!(std::abs(piece.rate) < most_rate)) piece.rate = 0;
        if (i > 0) least = std::max(least, by(pieces_[i - 1], piece.from));
        least_.push_back(least);
    }
}

std::int64_t ShownClock::of(std::int64_t ns) const noexcept {
    ns = std::clamp(ns, -most_ns, most_ns);
    if (pieces_.empty()) return std::max<std::int64_t>(ns, 0);
    std::size_t i = pieces_.size() - 1;
    while (i > 0 && pieces_[i].from > ns) --i;
    return std::max(by(pieces_[i], ns), least_[i]);
}

}  // namespace dftrace
