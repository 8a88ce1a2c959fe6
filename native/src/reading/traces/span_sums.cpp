// Adding up spans by group and name.
#include "dftrace/reading/traces/span_sums.hpp"

#include <tuple>

namespace dftrace {

namespace {

// Sums of two such times stay within 64 bits.
constexpr std::int64_t latest_ns = std::int64_t{1} << 61;

constexpr std::int64_t most_spans = std::int64_t{1} << 53;
constexpr WideNs most_wall_ns = WideNs{1} << 100;
__extension__ using UnsignedWide = unsigned __int128;

constexpr std::size_t most_row_bytes = std::size_t{1} << 20;

void put_wide(std::vector<std::int64_t>& to, WideNs number) {
    to.push_back(static_cast<std::int64_t>(number));
    to.push_back(static_cast<std::int64_t>(number >> 64));
}

// Numbers one after the other, of which there may be too few.
class Packed {
  public:
    Packed(const std::int64_t* from, std::size_t size) : at_(from), end_(from + size) {}
    std::int64_t next() noexcept {
        if (at_ != end_) return *at_++;
        well_ = false;
        return 0;
    }
    WideNs wide() noexcept {
        const auto low = static_cast<std::uint64_t>(next());
        return static_cast<WideNs>(static_cast<UnsignedWide>(static_cast<WideNs>(next())) << 64 | low);
    }
    std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
    bool well() const noexcept { return well_; }

  private:
    const std::int64_t *at_, *end_;
    bool well_ = true;
};

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

void SpanSums::pack(std::vector<std::int64_t>& to) const {
    to.push_back(static_cast<std::int64_t>(groups_.size()));
    for (const SpanGroup& group : groups_) to.insert(to.end(), {group.first, group.second});
    for (const Row& row : rows_) {
        if (!row.sum.count) continue;
        to.insert(to.end(), {row.group, row.name, static_cast<std::int64_t>(row.sum.count), row.sum.least,
                             row.sum.greatest});
        put_wide(to, row.sum.total);
        put_wide(to, row.own);
        put_wide(to, row.wall.ns);
        const std::size_t head = to.size();
        to.insert(to.end(), {row.wall.known, 0, 0});
        to[head + 1] = row.sum.durations.tell(to);
        to[head + 2] = static_cast<std::int64_t>(to.size() - head - 3);
    }
}

bool SpanSums::take_packed(const std::int64_t* from, std::size_t size, const std::vector<std::int64_t>& names,
                           const std::vector<std::int64_t>* called) {
    Packed packed(from, size);
    const auto count = static_cast<std::uint64_t>(packed.next());
    if (count > packed.left() / 2) return false;
    std::vector<SpanGroup> groups;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::int64_t first = packed.next();
        groups.push_back({first, packed.next()});
        if (!called) continue;
        if (first < 0 || static_cast<std::uint64_t>(first) >= called->size()) return false;
        groups.back().first = (*called)[static_cast<std::size_t>(first)];
    }
    std::vector<std::int64_t> durations;
    while (packed.left()) {
        const auto group = static_cast<std::uint64_t>(packed.next());
        const auto name = static_cast<std::uint64_t>(packed.next());
        const std::int64_t spans = packed.next();
        SpanSum sum;
        sum.count = static_cast<std::uint64_t>(spans);
        sum.least = packed.next();
        sum.greatest = packed.next();
        sum.total = packed.wide();
        const WideNs own = packed.wide(), wall_ns = packed.wide();
        const bool known = packed.next() != 0, exact = packed.next() != 0;
        const auto numbers = static_cast<std::uint64_t>(packed.next());
        if (!packed.well() || numbers > packed.left() || group >= groups.size() || name >= names.size() ||
            spans < 1 || spans > most_spans || sum.least < 0 || sum.least > sum.greatest ||
            sum.total < WideNs{sum.least} * spans || sum.total > WideNs{sum.greatest} * spans ||
            own > sum.total || own < -sum.total || wall_ns < 0 || wall_ns > most_wall_ns)
            return false;
        durations.clear();
        for (std::uint64_t i = 0; i < numbers; ++i) durations.push_back(packed.next());
        Budget room(most_row_bytes);
        if (!sum.durations.take_in(exact, durations, room) || sum.durations.size() != sum.count ||
            !sum.durations.reach(sum.least, sum.greatest))
            return false;
        Row& row =
            row_of(group_of(groups[static_cast<std::size_t>(group)]), names[static_cast<std::size_t>(name)]);
        row.sum.add(sum, budget_);
        row.own += own;
        row.wall.ns += wall_ns;
        row.wall.known = row.wall.known && known;
    }
    return true;
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
