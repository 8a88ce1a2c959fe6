// What has been added up: taken from an index, and told.
#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "dftrace/reading/traces/totals.hpp"

namespace dftrace {

bool Totals::add_known(const KnownFigures& known) {
    constexpr std::uint64_t most_events = std::uint64_t{1} << 53;
    std::uint64_t events = 0;
    std::vector<SpanSum> sums(known.spans.size());
    Budget room(std::size_t{256} << 20);  // for what may turn out to be of no use
    for (std::size_t i = 0; i < known.spans.size(); ++i) {
        const KnownFigures::Spans& of = known.spans[i];
        const WideNs count = of.count;
        if (of.count == 0 || of.count > most_events || of.least < 0 || of.least > of.greatest ||
            of.total < of.least * count || of.total > of.greatest * count || of.self > of.total ||
            !sums[i].durations.take_in(of.exact, of.durations, room) ||
            sums[i].durations.size() != of.count || !sums[i].durations.reach(of.least, of.greatest) ||
            (of.exact && std::accumulate(of.durations.begin(), of.durations.end(), WideNs{0}) != of.total))
            return false;
        sums[i].count = of.count;
        sums[i].total = of.total;
        sums[i].least = of.least;
        sums[i].greatest = of.greatest;
        events += of.count;
    }
    for (const KnownFigures::Others& of : known.others) {
        if (of.count == 0 || of.count > most_events) return false;
        events += of.count;
    }
    if (known.without_duration > most_events || known.unreadable > known.lines) return false;
    events += known.without_duration;
    if (events > known.lines || known.lines > most_events) return false;
    for (const KnownFigures::Track& track : known.tracks)
        if (!track.standing.holds()) return false;
    std::vector<std::size_t> frames;
    if (!knows_frames(known, frames)) return false;

    Reader& to = *readers_.front();
    for (std::size_t i = 0; i < known.spans.size(); ++i) {
        const KnownFigures::Spans& of = known.spans[i];
        const std::uint32_t label = labels_.number(of.label.category, of.label.name);
        grown(to.figures, label, budget_).add(sums[i], budget_);
        if (of.total != of.self) grown(covered_now_, label, budget_) += WideNs{of.total} - of.self;
    }
    for (const std::size_t i : frames) {
        const KnownFigures::Spans& of = known.spans[i];
        grown(covered_now_, labels_.number(of.label.category, of.label.name), budget_) += of.total;
        frames_now_ += of.total;
    }
    for (const KnownFigures::Others& of : known.others) {
        const std::uint32_t label = labels_.number(of.label.category, of.label.name);
        const std::size_t phase = of.ph.size() == 1 ? phases.find(of.ph) : phases.npos;
        if (phase != phases.npos)
            grown(to.figures, label, budget_).others[phase] += of.count;
        else
            add_odd(to, of.ph, label, of.count);
    }
    for (const KnownFigures::Track& track : known.tracks)
        covered_time_.resume(labels_.track(track.id), track.standing);
    to.events += events;
    to.unreadable += known.unreadable;
    lines_ += known.lines;
    return true;
}

bool Totals::end_process() {
    if (covered_time_.any_aside() && !again_) {
        again_ = true;
        covered_time_.begin_again();
        std::fill(covered_now_.begin(), covered_now_.end(), 0);
        frames_now_ = 0;
        return true;
    }
    clock_ = set_back(aside_);
    std::map<std::uint32_t, std::int64_t> taken;
    CoveredTime::sort_and_tell(
        aside_,
        [&](const CoveredTime::Span& span, std::int64_t covered) {
            if (is_lane(span.track) && is_frame(span, covered)) covered = span.duration;
            grown(covered_now_, span.label, budget_) += covered;
        },
        [&](std::uint32_t track, std::int64_t ns) { taken[track] = ns; });
    aside_ = {};
    taken_ = taken_by_main(taken);
    too_many_aside_ = false;
    frames_now_ = 0;
    for (std::size_t label = 0; label < covered_now_.size(); ++label) {
        if (covered_now_[label] == 0) continue;
        grown(covered_, label, budget_) += covered_now_[label];
        covered_now_[label] = 0;
    }
    covered_time_.forget();
    again_ = false;
    return false;
}

std::uint64_t Totals::events() const {
    std::uint64_t sum = 0;
    for (const auto& reader : readers_) sum += reader->events;
    return sum;
}

std::uint64_t Totals::unreadable() const {
    std::uint64_t sum = 0;
    for (const auto& reader : readers_) sum += reader->unreadable;
    return sum;
}

BlockReach Totals::take_reach() {
    BlockReach whole;
    for (const auto& reader : readers_) {
        const BlockReach of = std::exchange(reader->reach, {});
        if (of.first_ns <= of.last_ns) whole.add(of.first_ns, of.last_ns);
    }
    return whole;
}

// Moves everything to the first reader.
void Totals::merge() {
    Reader& to = *readers_.front();
    for (std::size_t i = 1; i < readers_.size(); ++i) {
        Reader& from = *readers_[i];
        // The smaller into the larger: of the common figures there may be many.
        if (from.figures.size() > to.figures.size()) std::swap(from.figures, to.figures);
        for (std::size_t label = 0; label < from.figures.size(); ++label) {
            const Figures& more = from.figures[label];
            Figures& figures = grown(to.figures, label, budget_);
            figures.add(more, budget_);
            for (std::size_t at = 0; at < phases.size(); ++at) figures.others[at] += more.others[at];
        }
        for (const auto& [key, count] : from.odd_phases) to.odd_phases[key] += count;
        from.figures.clear();
        from.odd_phases.clear();
    }
}

std::optional<KnownFigures> Totals::known() {
    merge();
    KnownFigures known;
    known.lines = lines_;
    known.unreadable = unreadable();
    known.without_duration = events();
    const std::vector<Figures>& figures = readers_.front()->figures;
    for (std::uint32_t label = 0; label < figures.size(); ++label) {
        const Figures& of = figures[label];
        if (of.count == 0) continue;
        const WideNs self = of.total - (label < covered_.size() ? covered_[label] : 0);
        if (of.total > INT64_MAX || self < INT64_MIN ||
            (label < self_not_known_.size() && self_not_known_[label]))
            return {};
        KnownFigures::Spans& spans = known.spans.emplace_back();
        spans.label = labels_[label];
        spans.count = of.count;
        spans.total = static_cast<std::int64_t>(of.total);
        spans.self = static_cast<std::int64_t>(self);
        spans.least = of.least;
        spans.greatest = of.greatest;
        spans.exact = of.durations.tell(spans.durations);
        known.without_duration -= of.count;
    }
    std::size_t all = 0;
    for (OtherFigures& of : others(SIZE_MAX, all)) {
        known.without_duration -= of.count;
        known.others.push_back({std::move(of.ph), *of.label, of.count});
    }
    return known;
}

std::optional<WideNs> Totals::self(std::uint32_t label, const Figures& of) const {
    if (label < self_not_known_.size() && self_not_known_[label]) return {};
    return of.total - (label < covered_.size() ? covered_[label] : 0);
}

std::vector<SpanFigures> Totals::spans(std::size_t most, std::size_t& all) {
    merge();
    const std::vector<Figures>& figures = readers_.front()->figures;
    std::vector<std::uint32_t> order;
    for (std::size_t label = 0; label < figures.size(); ++label)
        if (figures[label].count) order.push_back(static_cast<std::uint32_t>(label));
    all = order.size();
    const auto first = [&](std::uint32_t a, std::uint32_t b) {
        if (figures[a].total != figures[b].total) return figures[a].total > figures[b].total;
        if (figures[a].count != figures[b].count) return figures[a].count > figures[b].count;
        const Label &one = labels_[a], &other = labels_[b];
        return std::tie(one.category, one.name) < std::tie(other.category, other.name);
    };
    const std::size_t kept = std::min(most, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), first);
    std::vector<SpanFigures> found;
    for (std::size_t i = 0; i < kept; ++i) {
        SpanFigures& row = found.emplace_back(figures[order[i]].figures());
        row.label = &labels_[order[i]];
        row.self = self(order[i], figures[order[i]]);
        if (order[i] < walls_.size()) row.wall = walls_[order[i]].told();
    }
    return found;
}

std::vector<OtherFigures> Totals::others(std::size_t most, std::size_t& all) const {
    std::vector<OtherFigures> found;
    const auto put = [&](std::string ph, std::uint32_t label, std::uint64_t count) {
        if (count) found.push_back({std::move(ph), &labels_[label], count});
    };
    const Reader& reader = *readers_.front();
    for (std::size_t label = 0; label < reader.figures.size(); ++label)
        for (std::size_t at = 0; at < phases.size(); ++at)
            put(std::string(1, phases[at]), static_cast<std::uint32_t>(label),
                reader.figures[label].others[at]);
    for (const auto& [key, count] : reader.odd_phases) put(key.first, key.second, count);
    all = found.size();
    if (all <= most) return found;
    // Labels have their numbers by whichever thread met them first.
    const auto first = [](const OtherFigures& one, const OtherFigures& other) {
        if (one.count != other.count) return one.count > other.count;
        return std::tie(one.ph, one.label->category, one.label->name) <
               std::tie(other.ph, other.label->category, other.label->name);
    };
    const auto behind = found.begin() + static_cast<std::ptrdiff_t>(most);
    std::partial_sort(found.begin(), behind, found.end(), first);
    found.erase(behind, found.end());
    return found;
}

}  // namespace dftrace
