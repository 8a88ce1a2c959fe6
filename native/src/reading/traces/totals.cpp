// Adding up the lines.
#include "dftrace/reading/traces/totals.hpp"

#include <algorithm>
#include <utility>

#include "dftrace/reading/traces/members.hpp"

namespace dftrace {

namespace {

constexpr std::string_view custom_metadata = "CM";

// A reader has figures of its own for labels up to this one.
constexpr std::size_t most_labels_each = 1u << 16;

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
        const std::int64_t covered =
            covered_time_.of(covered_time_.track(track), start, end, rows.parent[row]);
        if (covered >= 0) {
            if (covered > 0) grown(covered_now_, label, budget_) += covered;
        } else if (again_) {
            if (aside_.size() < most_sorted_spans) {
                aside_.push_back({start, rows.duration[row], label, track});
            } else {
                if (label >= self_not_known_.size()) self_not_known_.resize(2 * std::size_t{label} + 1);
                self_not_known_[label] = true;
            }
        }
    }
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
