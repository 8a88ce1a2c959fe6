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

namespace {

// What groups take together, from the last one on: where two overlap, the later one lies over the other.
class Together {
  public:
    void add(const CoveredTime::Group& group) noexcept {
        taken_ += group.covered - std::max<std::int64_t>(group.end - free_until_, 0);
        free_until_ = std::min(free_until_, group.first);
    }
    std::int64_t taken() const noexcept { return taken_; }

  private:
    std::int64_t taken_ = 0, free_until_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

std::int64_t CoveredTime::taken(std::uint32_t number) const noexcept {
    return number >= tracks_.size() || tracks_[number].aside ? 0 : taken(tracks_[number]);
}

std::int64_t CoveredTime::taken(const Track& track) noexcept {
    if (track.before.empty()) return 0;
    Together all;
    all.add(track.last);
    // The first is nothing.
    for (std::size_t i = track.before.size() - 1; i > 0; --i) all.add(track.before[i]);
    return all.taken();
}

std::int64_t CoveredTime::Standing::taken() const noexcept {
    Together all;
    for (std::size_t i = groups.size(); i > 0; --i) all.add(groups[i - 1]);
    return all.taken();
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

void CoveredTime::forget() noexcept {
    for (const std::uint32_t number : met_) tracks_[number] = Track{};
    met_.clear();
    groups_ = 0;
    any_aside_ = false;
}

}  // namespace dftrace
