// Nesting, by a stack of what nothing has enclosed yet.
#include "dftrace/reading/traces/nested_tracks.hpp"

#include <algorithm>
#include <queue>
#include <tuple>

#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

namespace {

constexpr std::size_t most_tracks = 1u << 18;
constexpr std::size_t most_groups = 1u << 20;
constexpr std::size_t most_begun = 64;

}  // namespace

NestedTracks::Track* NestedTracks::track(std::uint64_t number) {
    if (tracks_.size() < most_tracks) return &tracks_[number];
    const auto found = tracks_.find(number);
    return found == tracks_.end() ? nullptr : &found->second;
}

bool NestedTracks::is_aside(const Track* track) const noexcept { return !track || track->aside; }

bool NestedTracks::nests(Track& track, std::int64_t start, std::int64_t end, std::uint64_t parent) {
    std::vector<NestedGroup>& groups = track.groups;
    if (end == never) {
        // All that begin later lie inside of it, and whatever is over by then does not.
        const auto later = std::lower_bound(
            groups.begin(), groups.end(), start,
            [](const NestedGroup& group, std::int64_t begin) { return group.start < begin; });
        if (track.begun.size() == most_begun || (later != groups.begin() && later[-1].end > start))
            return false;
        track.begun.push_back(start);
        return true;
    }
    if (end < track.end || (end == track.end && start > track.start)) return false;
    track.end = end;
    track.start = start;
    for (const std::int64_t begun : track.begun)
        if (start < begun && begun < end) return false;
    while (!groups.empty() && groups.back().start >= start) groups.pop_back();
    if (!groups.empty() && groups.back().end > start) return false;
    if (parent != no_parent && !groups.empty() && groups.back().parent == parent)
        groups.back().end = end;
    else
        groups.push_back({start, end, parent});
    return true;
}

void NestedTracks::add(Track* track, std::int64_t start, std::int64_t end, std::uint64_t parent) {
    // What takes no time is inside of whatever holds it, and holds nothing.
    if (start == end) return;
    if (!track) any_aside_ = true;
    if (is_aside(track)) return;
    const std::size_t before = track->groups.size();
    const bool well = nests(*track, start, end, parent);
    groups_ += track->groups.size() - before;
    if (well && groups_ <= most_groups) return;
    groups_ -= track->groups.size();
    track->groups = {};
    track->begun = {};
    track->aside = any_aside_ = true;
}

void NestedTracks::collect(const Span& span) {
    if (span.start == span.end) return;
    if (spans_.size() < most_spans_)
        spans_.push_back(span);
    else
        ++left_out_;
}

std::uint64_t NestedTracks::overlaps(std::size_t most, std::vector<Overlap>& first) {
    // The longest first of those that begin together.
    std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
        return std::tie(a.track, a.start, b.end, a.line) < std::tie(b.track, b.start, a.end, b.line);
    });
    const auto by_line = [](const Overlap& a, const Overlap& b) { return a.line < b.line; };
    std::priority_queue<Overlap, std::vector<Overlap>, decltype(by_line)> kept(by_line);
    std::uint64_t count = 0;
    std::vector<const Span*> open;
    for (const Span& span : spans_) {
        if (!open.empty() && open.front()->track != span.track) open.clear();
        while (!open.empty() && open.back()->end <= span.start) open.pop_back();
        if (open.empty() || open.back()->end >= span.end) {
            open.push_back(&span);
            continue;
        }
        ++count;
        kept.push({span.track, span.line, open.back()->line});
        if (kept.size() > most) kept.pop();
    }
    for (first.clear(); !kept.empty(); kept.pop()) first.push_back(kept.top());
    std::reverse(first.begin(), first.end());
    return count;
}

}  // namespace dftrace
