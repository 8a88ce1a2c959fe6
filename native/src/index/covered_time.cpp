// Spans inside of spans, with no more memory than a track is deep.
#include "dftrace/index/covered_time.hpp"

#include <utility>

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

CoveredTime::Track& CoveredTime::met(std::uint32_t number) {
    if (number >= tracks_.size()) tracks_.resize(std::size_t{number} + number / 2 + 16);
    Track& track = tracks_[number];
    if (!track.known) {
        met_.push_back(number);
        track.known = true;
    }
    return track;
}

std::int64_t CoveredTime::of(std::uint32_t number, std::int64_t start, std::int64_t duration,
                             std::uint64_t parent) {
    Track& track = met(number);
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

void CoveredTime::forget(std::uint32_t number) noexcept {
    if (number >= tracks_.size()) return;
    Track& track = tracks_[number];
    groups_ -= track.groups.size();
    const bool known = track.known;
    track = Track{};
    track.known = known;
}

bool CoveredTime::Standing::holds() const noexcept {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;
    const auto may_be = [](std::int64_t time) { return time >= -most && time <= most; };
    if (groups.size() > most_groups || !may_be(end) || !may_be(start)) return false;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const Group& group = groups[i];
        if (!may_be(group.first) || group.last < group.first || group.end <= group.last || group.end > end ||
            group.covered < 0 || group.covered > most || (i && groups[i - 1].last >= group.first))
            return false;
    }
    return true;
}

std::string CoveredTime::tell(std::uint32_t number) const {
    if (number >= tracks_.size()) return {};
    const Track& track = tracks_[number];
    if (track.end == std::numeric_limits<std::int64_t>::min()) return {};
    std::string json = ",\"end_ns\":" + std::to_string(track.end);
    json += ",\"start_ns\":" + std::to_string(track.start) + ",\"spans\":[";
    const char* between = "";
    for (const Group& group : track.groups) {
        json += std::exchange(between, ",");
        for (const std::int64_t time : {group.first, group.last, group.end, group.covered})
            json += std::to_string(time) + ',';
        // -1 for none.
        json += std::to_string(static_cast<std::int64_t>(group.parent));
    }
    return json + ']';
}

std::optional<CoveredTime::Standing> CoveredTime::standing(std::uint32_t number) const {
    if (number >= tracks_.size() || tracks_[number].end == std::numeric_limits<std::int64_t>::min())
        return {};
    const Track& track = tracks_[number];
    return Standing{track.end, track.start, track.groups};
}

void CoveredTime::resume(std::uint32_t number, const Standing& standing) {
    Track& track = met(number);
    groups_ -= track.groups.size();
    track.end = standing.end;
    track.start = standing.start;
    track.groups = standing.groups;
    groups_ += track.groups.size();
    if (groups_ > most_groups) put_aside(track);
}

void CoveredTime::forget() noexcept {
    for (const std::uint32_t number : met_) tracks_[number] = Track{};
    met_.clear();
    groups_ = 0;
    any_aside_ = false;
}

}  // namespace dftrace
