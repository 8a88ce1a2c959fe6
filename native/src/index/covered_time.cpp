// Spans inside of spans, with no more memory than a track is deep.
#include "dftrace/index/covered_time.hpp"

namespace dftrace {

bool CoveredTime::enclose(std::vector<Group>& groups, std::int64_t start, std::int64_t duration,
                          std::uint64_t parent, std::int64_t& covered) {
    covered = 0;
    // Nothing lies inside of no time, and it takes none of anything.
    if (duration == 0) return true;
    std::int64_t free_until = start + duration;
    while (!groups.empty() && groups.back().first >= start) {
        const Group& inside = groups.back();
        // Where spans overlap, the later one lies over the last of the group.
        covered += inside.covered - std::max<std::int64_t>(inside.end - free_until, 0);
        free_until = std::min(free_until, inside.first);
        groups.pop_back();
    }
    if (!groups.empty() && groups.back().last >= start) return false;
    const std::int64_t end = start + duration;
    if (parent != no_parent && !groups.empty() && groups.back().parent == parent) {
        Group& beside = groups.back();
        beside.covered += end - std::max(start, beside.end);
        beside.last = start;
        beside.end = end;
    } else {
        groups.push_back({start, start, end, duration, parent});
    }
    return true;
}

std::int64_t CoveredTime::of(std::uint32_t number, std::int64_t start, std::int64_t duration,
                             std::uint64_t parent) {
    if (number >= tracks_.size()) tracks_.resize(std::size_t{number} + number / 2 + 16);
    Track& track = tracks_[number];
    if (!track.known) {
        track.known = true;
        met_.push_back(number);
    }
    if (track.aside) return not_known;
    if (duration == 0) return 0;
    const std::int64_t end = start + duration;
    const bool in_order = end > track.end || (end == track.end && start <= track.start);
    track.end = end;
    track.start = start;
    const std::size_t before = track.groups.size();
    std::int64_t covered = 0;
    const bool whole = in_order && enclose(track.groups, start, duration, parent, covered);
    groups_ += track.groups.size() - before;
    if (whole && groups_ <= most_groups) return covered;
    put_aside(track);
    return not_known;
}

void CoveredTime::put_aside(Track& track) noexcept {
    groups_ -= track.groups.size();
    track.groups = {};
    track.aside = any_aside_ = true;
}

void CoveredTime::begin_again() noexcept {
    for (const std::uint32_t number : met_) {
        Track& track = tracks_[number];
        const bool aside = track.aside;
        track = Track{};
        track.known = true;
        track.aside = aside;
    }
    groups_ = 0;
}

void CoveredTime::forget() noexcept {
    for (const std::uint32_t number : met_) tracks_[number] = Track{};
    met_.clear();
    groups_ = 0;
    any_aside_ = false;
}

}  // namespace dftrace
