// Spans inside of spans, with no more memory than a track is deep.
#include "dftrace/index/covered_time.hpp"

namespace dftrace {

std::int64_t CoveredTime::behind(Track& track, std::int64_t start, std::int64_t end, std::uint64_t parent) {
    if (track.aside) return not_known;
    // Nothing lies inside of no time, and it takes none of anything.
    if (start >= end) return 0;
    Group& last = track.last;
    bool whole = end > last.end || (end == last.end && start <= last.last);
    std::int64_t covered = 0, free_until = end;
    while (whole && last.first >= start && !track.before.empty()) {
        // Where spans overlap, the later one lies over the last of the group.
        covered += last.covered - std::max<std::int64_t>(last.end - free_until, 0);
        free_until = std::min(free_until, last.first);
        last = track.before.back();
        track.before.pop_back();
        --groups_;
    }
    // Not where it cuts a group in two.
    whole = whole && last.last < start && remember(track, start, end, parent);
    if (!whole && !track.aside) put_aside(track);
    return whole ? covered : not_known;
}

bool CoveredTime::remember_apart(Track& track, const Group& group) {
    track.before.push_back(track.last);
    track.last = group;
    if (++groups_ <= most_) return true;
    put_aside(track);
    return false;
}

CoveredTime::Track& CoveredTime::track(std::uint32_t number) {
    if (number >= tracks_.size()) tracks_.resize(std::size_t{number} + number / 2 + 16);
    Track& track = tracks_[number];
    if (!track.known) {
        met_.push_back(number);
        track.known = true;
    }
    return track;
}

void CoveredTime::put_aside(Track& track) noexcept {
    groups_ -= track.before.size();
    track.before = {};
    track.last = nothing;
    track.last.end = std::numeric_limits<std::int64_t>::max();
    track.aside = any_aside_ = true;
}

void CoveredTime::begin_again() noexcept {
    for (const std::uint32_t number : met_) {
        Track& track = tracks_[number];
        if (!track.aside) track = Track{};
        track.known = true;
    }
    groups_ = 0;
}

void CoveredTime::forget(std::uint32_t number) noexcept {
    if (number >= tracks_.size()) return;
    Track& track = tracks_[number];
    groups_ -= track.before.size();
    const bool known = track.known;
    track = Track{};
    track.known = known;
}

bool CoveredTime::Standing::holds() const noexcept {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;
    const auto may_be = [](std::int64_t time) { return time >= -most && time <= most; };
    if (groups.empty() || groups.size() > most_groups || !may_be(end) || groups.back().end != end ||
        groups.back().last != start)
        return false;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const Group& group = groups[i];
        if (!may_be(group.first) || group.last < group.first || group.end <= group.last || group.end > end ||
            group.covered < 0 || group.covered > most || (i && groups[i - 1].last >= group.first))
            return false;
    }
    return true;
}

std::string CoveredTime::tell(std::uint32_t number) const {
    if (number >= tracks_.size() || tracks_[number].before.empty()) return {};
    const Track& track = tracks_[number];
    std::string json = ",\"end_ns\":" + std::to_string(track.last.end);
    json += ",\"start_ns\":" + std::to_string(track.last.last) + ",\"spans\":[";
    const auto put = [&json](const Group& group) {
        for (const std::int64_t time : {group.first, group.last, group.end, group.covered})
            json += std::to_string(time) + ',';
        // -1 for none.
        json += std::to_string(static_cast<std::int64_t>(group.parent)) + ',';
    };
    // The first is nothing.
    for (std::size_t i = 1; i < track.before.size(); ++i) put(track.before[i]);
    put(track.last);
    json.back() = ']';
    return json;
}

std::optional<CoveredTime::Standing> CoveredTime::standing(std::uint32_t number) const {
    if (number >= tracks_.size() || tracks_[number].before.empty()) return {};
    const Track& track = tracks_[number];
    Standing standing{track.last.end, track.last.last, {track.before.begin() + 1, track.before.end()}};
    standing.groups.push_back(track.last);
    return standing;
}

void CoveredTime::resume(std::uint32_t number, const Standing& standing) {
    Track& track = this->track(number);
    if (track.aside) return;
    forget(number);
    for (const Group& group : standing.groups)
        if (!remember_apart(track, group)) return;
}

void CoveredTime::forget() noexcept {
    for (const std::uint32_t number : met_) tracks_[number] = Track{};
    met_.clear();
    groups_ = 0;
    any_aside_ = false;
}

}  // namespace dftrace
