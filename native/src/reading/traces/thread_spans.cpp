// Neighbours are of one thread as a rule, and a process has few.
#include "dftrace/reading/traces/thread_spans.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

namespace dftrace {

std::vector<PairCount> count_pairs(std::span<const std::int64_t> first,
                                   std::span<const std::uint8_t> second) {
    std::vector<PairCount> found;
    // Of each first number the place of each second one in `found`, one more; 0 for none.
    std::unordered_map<std::int64_t, std::vector<std::size_t>> places;
    std::vector<std::size_t>* of = nullptr;
    for (std::size_t row = 0; row < first.size(); ++row) {
        if (!of || first[row] != first[row - 1]) {
            of = &places[first[row]];
            if (of->empty()) of->resize(256);
        }
        std::size_t& place = (*of)[second[row]];
        if (!place) {
            found.push_back({first[row], second[row], 0});
            place = found.size();
        }
        ++found[place - 1].count;
    }
    return found;
}

bool nest(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends, std::int64_t near) {
    std::vector<std::int64_t> open;
    for (std::size_t row = 0; row < starts.size(); ++row) {
        while (!open.empty() && open.back() <= starts[row]) open.pop_back();
        if (!open.empty() && (open.back() < ends[row] || open.back() - starts[row] <= near)) return false;
        open.push_back(ends[row]);
    }
    return true;
}

void order_ties(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
                std::span<const std::uint64_t> numbers, std::span<std::int64_t> order) {
    const auto before = [&](std::int64_t one, std::int64_t other) {
        const auto a = static_cast<std::size_t>(one), b = static_cast<std::size_t>(other);
        return ends[a] != ends[b] ? ends[a] > ends[b] : numbers[a] < numbers[b];
    };
    const auto start_at = [&](std::size_t at) { return starts[static_cast<std::size_t>(order[at])]; };
    for (std::size_t first = 0; first + 1 < order.size();) {
        std::size_t behind = first + 1;
        while (behind < order.size() && start_at(behind) == start_at(first)) ++behind;
        if (behind - first == 2) {
            if (before(order[first + 1], order[first])) std::swap(order[first], order[first + 1]);
        } else if (behind - first > 2) {
            const auto from = order.begin();
            std::stable_sort(from + static_cast<std::ptrdiff_t>(first),
                             from + static_cast<std::ptrdiff_t>(behind), before);
        }
        first = behind;
    }
}

EventReach event_reach(std::span<const std::uint8_t> phases, std::span<const std::int64_t> starts,
                       std::span<const std::int64_t> lengths, std::uint8_t without, std::int64_t latest) {
    EventReach found{std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::min()};
    for (std::size_t row = 0; row < starts.size(); ++row) {
        if (starts[row] == -1 || phases[row] == without) continue;
        const std::int64_t length = std::clamp(lengths[row], std::int64_t{0}, latest);
        found.first = std::min(found.first, starts[row]);
        found.last = std::max(found.last, std::min(starts[row], latest) + length);
    }
    return found;
}

}  // namespace dftrace
