// The spans of a track as a tree, built from the leaves.
#include "dftrace/reading/traces/span_tree.hpp"

namespace dftrace {

bool SpanTree::enclose(Track& track, std::int64_t start, std::int64_t end, std::int64_t id,
                       std::int64_t& own) {
    if (end < track.end) return false;
    const std::int32_t span = keeps_ ? static_cast<std::int32_t>(parents_.size()) - 1 : -1;
    const bool empty = start == end;
    bool ends_empty = empty;
    while (!track.open.empty() && track.open.back().start >= start) {
        const Open& inside = track.open.back();
        // Of two with the same times the one around the other has the lower number. It came last.
        if (inside.start == start && inside.end == end && track.last_id < id) return false;
        own -= inside.end - inside.start;
        ends_empty |= inside.ends_empty && inside.end == end;
        if (keeps_) parents_[static_cast<std::size_t>(inside.span)] = span;
        track.open.pop_back();
    }
    if (!track.open.empty()) {
        const Open& before = track.open.back();
        // One without length lies in what ends where it stands, and rather in what begins there.
        if (before.end > start || (before.end == start && (empty || before.ends_empty))) return false;
    }
    track.end = end;
    track.last_id = id;
    track.open.push_back({start, end, span, ends_empty});
    return true;
}

bool SpanTree::add(const Rows& rows, std::vector<std::int64_t>& own) {
    for (std::size_t row = 0; row < rows.size; ++row) {
        const std::int64_t start = rows.start[row], duration = rows.duration[row];
        if (duration < 0) continue;
        if (parents_.size() >= std::numeric_limits<std::int32_t>::max()) return false;
        if (keeps_) parents_.push_back(-1);
        own.push_back(duration);
        // Of what says no time nothing is known.
        if (start < 0) continue;
        const std::uint32_t number = rows.track[row];
        if (number >= tracks_.size()) tracks_.resize(std::size_t{number} + number / 2 + 16);
        if (!enclose(tracks_[number], start, start + duration, static_cast<std::int64_t>(rows.id[row]),
                     own.back()))
            return false;
    }
    return true;
}

}  // namespace dftrace
