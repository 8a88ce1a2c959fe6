// Of what wall time the figures of a name are, and the figures of whole categories.
#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "dftrace/reading/traces/totals.hpp"

namespace dftrace {

namespace {

// Such spans hold what is done in a loop, and are no work of their category.
bool is_body(std::string_view name) {
    for (const std::string_view end : {".block", ".yield"})
        if (name.size() > end.size() && name.ends_with(end)) return true;
    return false;
}

}  // namespace

void Totals::add_wall(std::optional<std::int64_t> ns) {
    std::set<CategoryKey> categories;
    std::size_t labels = 0;
    for (const auto& reader : readers_) labels = std::max(labels, reader->figures.size());
    const std::size_t before = counted_.size();
    if (labels > before) {
        budget_.take((labels - before) * (sizeof(std::uint64_t) + sizeof(Wall)));
        counted_.resize(labels);
        walls_.resize(labels);
    }
    for (std::size_t label = 0; label < labels; ++label) {
        std::uint64_t count = 0;
        for (const auto& reader : readers_)
            if (label < reader->figures.size()) count += reader->figures[label].count;
        if (count == counted_[label]) continue;
        counted_[label] = count;
        walls_[label].add(ns);
        const Label& called = labels_[static_cast<std::uint32_t>(label)];
        categories.emplace(called.category, is_body(called.name));
    }
    for (const CategoryKey& key : categories) {
        const auto [found, fresh] = category_walls_.try_emplace(key);
        if (fresh) budget_.take(128 + key.first.size());
        found->second.add(ns);
    }
}

std::vector<CategoryFigures> Totals::categories(std::size_t most, std::size_t& all) {
    merge();
    struct Sum {
        SpanSum spans;
        std::optional<WideNs> self = 0;
    };
    std::map<CategoryKey, Sum> sums;
    const std::vector<Figures>& figures = readers_.front()->figures;
    for (std::uint32_t label = 0; label < figures.size(); ++label) {
        const Figures& of = figures[label];
        if (of.count == 0) continue;
        const Label& called = labels_[label];
        const auto [found, fresh] = sums.try_emplace({called.category, is_body(called.name)});
        if (fresh) budget_.take(256 + called.category.size());
        Sum& sum = found->second;
        sum.spans.add(of, budget_);
        const std::optional<WideNs> own = self(label, of);
        sum.self = own && sum.self ? std::optional(*own + *sum.self) : std::nullopt;
    }
    all = sums.size();
    std::vector<CategoryFigures> found;
    for (auto& [key, sum] : sums) {
        SpanFigures row = sum.spans.figures();
        row.self = sum.self;
        if (const auto wall = category_walls_.find(key); wall != category_walls_.end())
            row.wall = wall->second.told();
        sum.spans.durations.clear(budget_);
        found.push_back({key.first, key.second, row});
    }
    // Those that are equal stay in the order of their names.
    std::stable_sort(found.begin(), found.end(), [](const CategoryFigures& a, const CategoryFigures& b) {
        return a.spans.total > b.spans.total;
    });
    if (found.size() > most)
        found.erase(std::next(found.begin(), static_cast<std::ptrdiff_t>(most)), found.end());
    return found;
}

}  // namespace dftrace
