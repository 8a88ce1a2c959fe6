// Placing intervals on lanes.
#include "dftrace/writing/lanes.hpp"

namespace dftrace {

bool Lanes::fits(Lane& lane, Interval interval) const {
    std::size_t keep = lane.outermost.size();
    while (keep > 0 && lane.outermost[keep - 1].start >= interval.start) {
        // Behind the interval, or reaching out of it: this lane is not in order for it.
        if (!nest_ || lane.outermost[keep - 1].end > interval.end) return false;
        --keep;
    }
    if (keep > 0 && lane.outermost[keep - 1].end > interval.start) return false;
    if (interval.start < lane.closed_before) return false;
    lane.outermost.resize(keep);
    lane.outermost.push_back(interval);
    constexpr std::size_t remembered = 1024;
    if (lane.outermost.size() > 2 * remembered) {
        lane.closed_before = lane.outermost[remembered - 1].end;
        lane.outermost.erase(lane.outermost.begin(), lane.outermost.begin() + remembered);
    }
    return true;
}

std::size_t Lanes::place(std::uint64_t start, std::uint64_t end) {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (fits(lanes_[i], {start, end})) return i;
    lanes_.push_back({{{start, end}}, 0});
    return lanes_.size() - 1;
}

}  // namespace dftrace
