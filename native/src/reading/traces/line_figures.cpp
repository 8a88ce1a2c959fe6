// Figures by category and name, line by line.
#include "dftrace/reading/traces/line_figures.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace dftrace {

namespace {

constexpr std::string_view custom_metadata = "CM";

}  // namespace

void LineFigures::give_up() noexcept {
    given_up_ = true;
    std::vector<Figures>().swap(figures_);
    covered_time_.forget();
}

std::uint32_t LineFigures::label_of(LineWalk& walk, std::uint32_t number) {
    std::uint32_t& known = grown(label_of_, number, budget_);
    if (!known) {
        const Label& label = walk.labels()[number];
        known = labels_.number(label.category, label.name) + 1;
    }
    return known - 1;
}

std::uint32_t LineFigures::track_of(LineWalk& walk, std::uint32_t number) {
    std::uint32_t& known = grown(track_of_, number, budget_);
    if (!known) known = labels_.track(walk.labels().track_id(number)) + 1;
    return known - 1;
}

void LineFigures::add(LineWalk& walk) {
    if (given_up_ || walk.row() == LineWalk::no_row) return;
    try {
        add_row(walk);
    } catch (const TooMuch&) {
        give_up();
    }
}

void LineFigures::add_row(LineWalk& walk) {
    if (generation_ != walk.generation()) {
        generation_ = walk.generation();
        std::fill(label_of_.begin(), label_of_.end(), 0);
        std::fill(track_of_.begin(), track_of_.end(), 0);
    }
    const Rows& rows = walk.rows();
    const std::size_t row = walk.row();
    const auto ph = static_cast<char>(rows.ph[row]);
    const std::uint32_t label = label_of(walk, rows.label[row]);
    Figures& of = grown(figures_, label, budget_);
    if (const std::int64_t start = rows.start[row]; start != no_time && ph != 'M')
        reach_.add(start, start + std::max<std::int64_t>(rows.duration[row], 0));
    if (ph != 'X') {
        const std::size_t phase = other_phases.find(ph);
        if (phase != other_phases.npos && (ph != 'M' || labels_[label].name == custom_metadata))
            ++of.others[phase];
        return;
    }
    const std::int64_t duration = rows.duration[row];
    if (duration < 0) return;
    of.add(duration, budget_);
    const std::int64_t start = rows.start[row];
    if (start == no_time) return;
    CoveredTime::Track& track = covered_time_.track(track_of(walk, rows.track[row]));
    const std::int64_t covered = covered_time_.of(track, start, start + duration, rows.parent[row]);
    of.covered += static_cast<std::uint64_t>(std::max<std::int64_t>(covered, 0));
}

void LineFigures::resume(const std::vector<KnownFigures::Track>& tracks) {
    if (given_up_) return;
    try {
        for (const KnownFigures::Track& track : tracks)
            if (track.standing.holds()) covered_time_.resume(labels_.track(track.id), track.standing);
    } catch (const TooMuch&) {
        give_up();
    }
}

std::optional<KnownFigures> LineFigures::told() const {
    if (given_up_) return {};
    KnownFigures told;
    told.reach = reach_;
    for (std::size_t number = 0; number < figures_.size(); ++number) {
        const Figures& of = figures_[number];
        if (!of.count && of.others == decltype(of.others){}) continue;
        const Label& label = labels_[static_cast<std::uint32_t>(number)];
        if (of.count) {
            KnownFigures::Spans& spans = told.spans.emplace_back();
            spans.label = label;
            spans.count = of.count;
            spans.total = static_cast<std::int64_t>(of.total);
            spans.self = static_cast<std::int64_t>(static_cast<std::uint64_t>(of.total) - of.covered);
            spans.least = of.least;
            spans.greatest = of.greatest;
            spans.exact = of.durations.tell(spans.durations);
        }
        for (std::size_t at = 0; at < other_phases.size(); ++at)
            if (of.others[at])
                told.others.push_back({std::string(1, other_phases[at]), label, of.others[at]});
    }
    for (std::uint32_t number = 0; number < labels_.tracks(); ++number) {
        if (std::optional<CoveredTime::Standing> standing = covered_time_.standing(number))
            told.tracks.push_back({labels_.track_id(number), std::move(*standing)});
    }
    return told;
}

}  // namespace dftrace
