// Neighbours are of one thread as a rule, and a process has few.
#include "dftrace/reading/traces/thread_spans.hpp"

#include <unordered_map>

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

}  // namespace dftrace
