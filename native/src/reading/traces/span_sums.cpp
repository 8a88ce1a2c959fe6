// Adding up spans by group and name.
#include "dftrace/reading/traces/span_sums.hpp"

#include <tuple>

namespace dftrace {

namespace {

// Sums of two such times stay within 64 bits.
constexpr std::int64_t latest_ns = std::int64_t{1} << 61;

}  // namespace

void SpanSum::add(const SpanSum& more, Budget& budget) {
    if (!more.count) return;
    least = count ? std::min(least, more.least) : more.least;
    greatest = std::max(greatest, more.greatest);
    count += more.count;
    total += more.total;
    durations.add(more.durations, budget);
}

void SpanSum::forget(Budget& budget) {
    count = 0;
    total = 0;
    least = greatest = 0;
    durations.forget(budget);
}

SpanFigures SpanSum::figures() const {
    SpanFigures told;
    told.count = count;
    told.total = total;
    told.least = least;
    told.greatest = greatest;
    told.p50 = durations.quantile(0.5, least, greatest);
    told.p95 = durations.quantile(0.95, least, greatest);
    told.p99 = durations.quantile(0.99, least, greatest);
    return told;
}

std::size_t SpanSums::place(const Known& of) const noexcept {
    auto hash = static_cast<std::uint64_t>(of.a) * 0x9E3779B97F4A7C15ull + of.is_row;
    hash = (hash ^ hash >> 32 ^ static_cast<std::uint64_t>(of.b)) * 0xC2B2AE3D27D4EB4Full;
    std::size_t at = (hash ^ hash >> 29) & (table_.size() - 1);
    while (table_[at] && !known_[table_[at] - 1].is(of)) at = (at + 1) & (table_.size() - 1);
    return at;
}

std::uint32_t SpanSums::number(std::int64_t a, std::int64_t b, bool is_row, std::uint32_t fresh) {
    const Known wanted{a, b, is_row, fresh};
    // What was asked for once comes again mostly in the same order.
    for (std::size_t guess = last_; guess < std::min(last_ + 2, known_.size()); ++guess)
        if (known_[guess].is(wanted)) return known_[last_ = guess].number;
    const std::size_t at = place(wanted);
    if (table_[at]) return known_[last_ = table_[at] - 1].number;
    last_ = known_.size();
    budget_.take(2 * sizeof(Known) + (is_row ? sizeof(Row) : sizeof(SpanGroup) + sizeof(Reach)));
    known_.push_back(wanted);
    table_[at] = static_cast<std::uint32_t>(known_.size());
    if (2 * known_.size() > table_.size()) {
        table_.assign(2 * table_.size(), 0);
        for (std::size_t i = 0; i < known_.size(); ++i)
            table_[place(known_[i])] = static_cast<std::uint32_t>(i + 1);
    }
    return fresh;
}

std::uint32_t SpanSums::group_of(const SpanGroup& group) {
    const auto all = static_cast<std::uint32_t>(groups_.size());
    const std::uint32_t found = number(group.first, group.second, false, all);
    if (found == all) {
        groups_.push_back(group);
        reaches_.emplace_back();
    }
    return found;
}

SpanSums::Row& SpanSums::row_of(std::uint32_t group, std::int64_t name) {
    const auto all = static_cast<std::uint32_t>(rows_.size());
    const std::uint32_t found = number(group, name, true, all);
    if (found == all) rows_.push_back({group, name, {}, 0, {}});
    return rows_[found];
}

void SpanSums::add(const Columns& spans) {
    std::uint32_t group = 0;
    for (std::size_t at = 0; at < spans.size; ++at) {
        const SpanGroup of{spans.first[at], spans.second[at]};
        // Those of a group mostly come together.
        if (at == 0 || groups_[group] != of) group = group_of(of);
        const std::int64_t duration = spans.duration[at];
        if (spans.start[at] >= 0) {
            const std::int64_t start = std::min(spans.start[at], latest_ns);
            Reach& reach = reaches_[group];
            reach.first = std::min(reach.first, start);
            reach.last = std::max(reach.last, start + std::min(duration, latest_ns));
        }
        if (spans.chosen && !spans.chosen[at]) continue;
        Row& row = row_of(group, spans.name[at]);
        row.sum.add(duration, budget_);
        row.own += spans.own[at];
    }
}

void SpanSums::forget() {
    for (Row& row : rows_) {
        row.sum.forget(budget_);
        row.own = 0;
        row.wall = {};
    }
    reaches_.assign(reaches_.size(), {});
}

void SpanSums::take(const Process& process) {
    const Row* before = nullptr;
    std::uint32_t group = 0;
    for (const Row& from : process.sums.rows_) {
        if (!from.sum.count) continue;  // of a process before this one
        if (!before || before->group != from.group)
            group = group_of(process.groups ? SpanGroup{(*process.groups)[from.group], SpanGroup::none}
                                            : process.sums.groups_[from.group]);
        before = &from;
        Row& row = row_of(group, from.name);
        row.sum.add(from.sum, budget_);
        row.own += from.own;
        const Reach& reach = process.sums.reaches_[from.group];
        row.wall.add(process.by_group ? std::max<std::int64_t>(reach.last - reach.first, 0) : process.wall);
    }
}

std::vector<SpanSums::Told> SpanSums::told(std::size_t most) const {
    std::vector<const Row*> order;
    for (const Row& row : rows_) order.push_back(&row);
    const auto first = [this](const Row* a, const Row* b) {
        if (a->sum.total != b->sum.total) return a->sum.total > b->sum.total;
        const SpanGroup &one = groups_[a->group], &other = groups_[b->group];
        return std::tie(one.first, one.second, a->name) < std::tie(other.first, other.second, b->name);
    };
    const std::size_t kept = std::min(most, order.size());
    const auto end = order.begin() + static_cast<std::ptrdiff_t>(kept);
    if (end != order.end()) std::nth_element(order.begin(), end, order.end(), first);
    std::sort(order.begin(), end, first);
    std::vector<Told> told;
    for (std::size_t at = 0; at < kept; ++at) {
        const Row& row = *order[at];
        Told& of = told.emplace_back(Told{groups_[row.group], row.name, row.sum.figures()});
        of.figures.self = row.own;
        of.figures.wall = row.wall.told();
    }
    return told;
}

}  // namespace dftrace
