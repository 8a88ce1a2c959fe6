// Searches among moments begin where the one before has ended.
#include "dftrace/reading/traces/moments.hpp"

#include <algorithm>
#include <array>
#include <limits>

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

void find_covered(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
                  std::span<const std::int64_t> lows, std::span<const std::int64_t> highs,
                  std::int64_t* covered) {
    std::vector<std::int64_t> until(starts.size() + 1), place(lows.size());
    for (std::size_t at = 0; at < starts.size(); ++at) until[at + 1] = until[at] + ends[at] - starts[at];
    // Of what is before a moment the last stretch may go on behind it.
    const auto before = [&](std::int64_t moment, std::int64_t behind) {
        const auto at = static_cast<std::size_t>(behind);
        return until[at] - (at ? std::max(std::int64_t{0}, ends[at - 1] - moment) : 0);
    };
    find_places(starts, lows, true, place.data());
    for (std::size_t at = 0; at < lows.size(); ++at) covered[at] = -before(lows[at], place[at]);
    find_places(starts, highs, true, place.data());
    for (std::size_t at = 0; at < lows.size(); ++at) covered[at] += before(highs[at], place[at]);
}

namespace {

// Stretches of time in order, without overlaps.
struct Windows {
    std::vector<std::int64_t> starts, ends;
};

// When calls were under way, and so long behind their ends.
Windows windows_of(const AwaitedCalls& calls, std::int64_t soon) {
    Windows found;
    // They come by their start as a rule; else all are in one.
    const bool rise = std::is_sorted(calls.start.begin(), calls.start.end());
    for (std::size_t row = 0; row < calls.start.size(); ++row) {
        const std::int64_t start = calls.start[row], end = calls.end[row] + soon;
        if (found.starts.empty() || (rise && start > found.ends.back())) {
            found.starts.push_back(start);
            found.ends.push_back(end);
        } else {
            found.starts.back() = std::min(found.starts.back(), start);
            found.ends.back() = std::max(found.ends.back(), end);
        }
    }
    return found;
}

// The moments within some windows at which a thread shows itself, in order, each once, and whether a span
// begins or ends there.
struct Signs {
    std::vector<std::int64_t> at;
    std::vector<std::uint8_t> own;

    Signs(const SignsOfLife& of, const Windows& windows) {
        constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
        const std::array kinds{of.starts, of.ends, of.others};
        std::array<std::vector<std::int64_t>, 3> first, behind;
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
            first[kind].resize(windows.starts.size());
            behind[kind].resize(windows.starts.size());
            find_places(kinds[kind], windows.starts, false, first[kind].data());
            find_places(kinds[kind], windows.ends, true, behind[kind].data());
        }
        for (std::size_t window = 0; window < windows.starts.size(); ++window) {
            const auto cursor = [&](std::size_t kind) {
                const auto from = kinds[kind].begin();
                return std::span(from + first[kind][window], from + behind[kind][window]);
            };
            auto starts = cursor(0), ends = cursor(1), others = cursor(2);
            for (;;) {
                const std::int64_t start = starts.empty() ? never : starts.front(),
                                   end = ends.empty() ? never : ends.front(),
                                   other = others.empty() ? never : others.front();
                const std::int64_t next = std::min({start, end, other});
                if (next == never) break;
                if (at.empty() || at.back() != next) {
                    at.push_back(next);
                    own.push_back(0);
                }
                own.back() |= start == next || end == next;
                if (start == next) starts = starts.subspan(1);
                if (end == next) ends = ends.subspan(1);
                if (other == next) others = others.subspan(1);
            }
        }
    }
};

}  // namespace

std::vector<Silence> broken_silences(const SignsOfLife& given, const AwaitedCalls& calls, std::int64_t soon) {
    // What a thread shows at other times ends no silence of these calls.
    const Signs signs(given, windows_of(calls, soon));
    std::vector<Silence> found;
    std::vector<std::size_t> rows;
    std::vector<std::int64_t> asked, place;
    // How many signs are before a moment of each call, or not behind it.
    const auto places = [&](auto moment, bool right) {
        asked.clear();
        for (const std::size_t row : rows) asked.push_back(moment(row));
        place.resize(asked.size());
        find_places(signs.at, asked, right, place.data());
        return place;
    };
    for (const bool within : {false, true}) {
        rows.clear();
        for (std::size_t row = 0; row < calls.start.size(); ++row)
            if ((calls.within[row] != 0) == within) rows.push_back(row);
        const auto called = places([&](std::size_t row) { return calls.start[row]; }, false);
        const auto earliest =
            places([&](std::size_t row) { return calls.end[row] - calls.late[row]; }, false);
        const auto ended = places([&](std::size_t row) { return calls.end[row]; }, false);
        const auto soon_behind = places([&](std::size_t row) { return calls.end[row] + soon; }, true);
        const auto until = places([&](std::size_t row) { return calls.until[row]; }, true);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const std::int64_t last = std::min({soon_behind[i] - 1, ended[i], until[i] - 1});
            std::int64_t longest = -1;
            std::size_t at = 0;
            for (std::int64_t sign = std::max(earliest[i] - 1, called[i]); sign < last; ++sign) {
                const auto here = static_cast<std::size_t>(sign);
                const std::int64_t length = signs.at[here + 1] - signs.at[here];
                if (length < longest || (within && !signs.own[here + 1])) continue;
                longest = length;
                at = here;
            }
            if (longest < 0) continue;
            const std::int64_t end = std::min(signs.at[at + 1], calls.end[rows[i]]);
            found.push_back({signs.at[at], end, static_cast<std::int64_t>(rows[i])});
        }
    }
    return found;
}

}  // namespace dftrace
