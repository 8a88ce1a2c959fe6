// Adding up the lines.
#include "dftrace/reading/traces/totals.hpp"

#include <algorithm>
#include <utility>

#include "dftrace/index/frames.hpp"
#include "dftrace/reading/traces/members.hpp"

namespace dftrace {

namespace {

constexpr std::string_view custom_metadata = "CM";

// A reader has figures of its own for labels up to this one.
constexpr std::size_t most_labels_each = 1u << 16;

// Kinds of tracks; 0 is not known yet.
constexpr std::uint8_t of_thread = 1, lane = 2;
// Of labels.
constexpr std::uint8_t other_name = 1, frame_name = 2;

}  // namespace

Totals::Totals(std::size_t readers, std::size_t most_bytes)
    : budget_(most_bytes), labels_(budget_), rows_(block_slots(readers)) {
    for (std::size_t i = 0; i <= readers; ++i) readers_.push_back(std::make_unique<Reader>(labels_));
}

void Totals::add_in_order(std::size_t slot) {
    const Rows& rows = rows_[slot];
    lines_ += rows.lines;
    for (std::size_t row = 0; row < rows.size; ++row) {
        if (rows.ph[row] != 'X' || rows.duration[row] < 0) continue;
        const std::uint32_t label = rows.label[row], track = rows.track[row];
        // A span without a start encloses nothing and lies nowhere.
        if (rows.start[row] == no_time) continue;
        const std::int64_t start = rows.start[row], end = start + rows.duration[row];
        CoveredTime::Track& at = covered_time_.track(track);
        std::int64_t covered = covered_time_.of(at, start, end, rows.parent[row]);
        if (at.kind != of_thread) [[unlikely]]
            covered =
                on_other_track(at, {start, rows.duration[row], label, track, rows.parent[row]}, covered);
        if (covered >= 0) {
            if (covered > 0) grown(covered_now_, label, budget_) += covered;
        } else if (again_) {
            if (aside_.size() < most_sorted_spans) {
                aside_.push_back({start, rows.duration[row], label, track, rows.parent[row]});
            } else {
                too_many_aside_ = true;
                if (label >= self_not_known_.size()) self_not_known_.resize(2 * std::size_t{label} + 1);
                self_not_known_[label] = true;
            }
        }
    }
}

bool Totals::is_lane(std::uint32_t track) const { return labels_.track_id(track).tid >= first_lane; }

bool Totals::has_frame_name(std::uint32_t label) {
    std::uint8_t& kind = grown(frame_names_, label, budget_);
    if (!kind) kind = is_frame_name(labels_[label].category, labels_[label].name) ? frame_name : other_name;
    return kind == frame_name;
}

bool Totals::is_frame(const CoveredTime::Span& span, std::int64_t covered) {
    return covered == 0 && is_outermost(span.parent) && has_frame_name(span.label);
}

std::int64_t Totals::on_other_track(CoveredTime::Track& at, const CoveredTime::Span& span,
                                    std::int64_t covered) {
    if (!at.kind) at.kind = is_lane(span.track) ? lane : of_thread;
    if (at.kind == of_thread || !is_frame(span, covered)) return covered;
    frames_now_ += span.duration;
    return span.duration;
}

// An index has the frames among the spans of their names, with all of their time for their own. Whether they
// are all of those of a name can be told where names and tracks come to the same.
bool Totals::knows_frames(const KnownFigures& known, std::vector<std::size_t>& frames) const {
    WideNs on_lanes = 0, named = frames_now_;
    bool any_lane = false, all_frames = true;
    for (const KnownFigures::Track& track : known.tracks) {
        const auto& groups = track.standing.groups;
        if (track.id.tid < first_lane || !std::all_of(groups.begin(), groups.end(),
                                                      [](const auto& of) { return is_outermost(of.parent); }))
            continue;
        any_lane = true;
        on_lanes += track.standing.taken();
    }
    if (!any_lane) return true;
    for (std::size_t i = 0; i < known.spans.size(); ++i) {
        const KnownFigures::Spans& of = known.spans[i];
        if (!is_frame_name(of.label.category, of.label.name)) continue;
        all_frames = all_frames && of.self == of.total;
        named += of.total;
        frames.push_back(i);
    }
    return frames.empty() || (all_frames && on_lanes == named);
}

std::optional<std::int64_t> Totals::taken_by_main(const std::map<std::uint32_t, std::int64_t>& sorted) const {
    if (too_many_aside_) return {};
    std::int64_t most = 0, of_main = 0;
    for (const std::uint32_t track : covered_time_.met()) {
        const TrackId id = labels_.track_id(track);
        if (id.tid >= first_lane) continue;
        const auto found = sorted.find(track);
        const std::int64_t taken = found == sorted.end() ? covered_time_.taken(track) : found->second;
        most = std::max(most, taken);
        if (id.pid == id.tid) of_main = std::max(of_main, taken);
    }
    if (of_main) return of_main;
    return most ? std::optional(most) : std::nullopt;
}

void Totals::add_span(Reader& to, std::uint32_t label, std::int64_t duration) {
    ++to.events;
    if (duration < 0) {
        ++to.unreadable;
        return;
    }
    grown(to.figures, label, budget_).add(duration, budget_);
}

void Totals::add_other(Reader& to, const Rows& rows, std::size_t row) {
    const std::uint8_t ph = rows.ph[row];
    const std::uint32_t label = rows.label[row];
    const std::size_t phase = phases.find(static_cast<char>(ph));
    if (ph == 'M') {
        for (std::size_t at = to.format_own.size(); at <= label; ++at)
            to.format_own.push_back(labels_[static_cast<std::uint32_t>(at)].name != custom_metadata);
        if (to.format_own[label]) return;
    }
    ++to.events;
    if (ph != 0 && phase != phases.npos) {
        ++grown(to.figures, label, budget_).others[phase];
        return;
    }
    std::string text(1, static_cast<char>(ph));
    if (ph == 0) {
        const auto& longer = rows.phases;
        text = std::lower_bound(longer.begin(), longer.end(), std::pair(row, std::string()))->second;
    }
    add_odd(to, text, label, 1);
}

void Totals::add_odd(Reader& to, const std::string& ph, std::uint32_t label, std::uint64_t count) {
    const auto [found, fresh] = to.odd_phases.try_emplace({ph, label}, 0);
    if (fresh) budget_.take(128 + ph.size());
    found->second += count;
}

void Totals::add_rows(const Rows& rows, Reader& to) {
    to.unreadable += rows.unreadable;
    for (std::size_t row = 0; row < rows.size; ++row) {
        if (rows.ph[row] == 'X')
            add_span(to, rows.label[row], rows.duration[row]);
        else
            add_other(to, rows, row);
        if (const std::int64_t start = rows.start[row]; start != no_time && rows.ph[row] != 'M')
            to.reach.add(start, start + std::max<std::int64_t>(rows.duration[row], 0));
    }
}

void Totals::add(std::size_t reader, std::size_t slot) {
    if (again_) return;
    const Rows& rows = rows_[slot];
    if (labels_.size() <= most_labels_each) return add_rows(rows, *readers_[reader]);
    const std::lock_guard guard(common_lock_);
    add_rows(rows, *readers_.back());
}

}  // namespace dftrace
