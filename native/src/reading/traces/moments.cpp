// Searches among moments begin where the one before has ended.
#include "dftrace/reading/traces/moments.hpp"

#include <algorithm>

namespace dftrace {

namespace {

template <typename Before>
void find_each(std::span<const std::int64_t> moments, std::span<const std::int64_t> asked, Before before,
               std::int64_t* places) {
    const std::size_t count = moments.size();
    std::size_t at = 0;
    for (std::size_t number = 0; number < asked.size(); ++number) {
        const std::int64_t one = asked[number];
        std::size_t low = 0, high = count, step = 1;
        if (at < count && before(moments[at], one)) {
            low = at + 1;
            while (low + step <= count && before(moments[low + step - 1], one)) {
                low += step;
                step *= 2;
            }
            high = std::min(count, low + step);
        } else {
            high = at;
            while (high >= step && !before(moments[high - step], one)) {
                high -= step;
                step *= 2;
            }
            low = high >= step ? high - step : 0;
        }
        const auto begin = moments.begin();
        at = static_cast<std::size_t>(
            std::partition_point(begin + static_cast<std::ptrdiff_t>(low),
                                 begin + static_cast<std::ptrdiff_t>(high),
                                 [&](std::int64_t moment) { return before(moment, one); }) -
            begin);
        places[number] = static_cast<std::int64_t>(at);
    }
}

}  // namespace

void find_places(std::span<const std::int64_t> moments, std::span<const std::int64_t> asked, bool right,
                 std::int64_t* places) {
    if (right)
        find_each(
            moments, asked, [](std::int64_t a, std::int64_t b) { return a <= b; }, places);
    else
        find_each(
            moments, asked, [](std::int64_t a, std::int64_t b) { return a < b; }, places);
}

void find_longest(std::span<const std::int64_t> moments, std::span<const std::int64_t> first,
                  std::span<const std::int64_t> last, std::span<const std::uint8_t> ends,
                  std::int64_t* longest) {
    const auto count = static_cast<std::int64_t>(moments.size());
    for (std::size_t number = 0; number < first.size(); ++number) {
        std::int64_t best = -1, length = -1;
        const std::int64_t end = std::min(last[number], count - 1);
        for (std::int64_t at = std::max<std::int64_t>(first[number], 0); at < end; ++at) {
            const auto here = static_cast<std::size_t>(at);
            if (!ends.empty() && !ends[here + 1]) continue;
            if (moments[here + 1] - moments[here] >= length) {
                length = moments[here + 1] - moments[here];
                best = at;
            }
        }
        longest[number] = best;
    }
}

}  // namespace dftrace
