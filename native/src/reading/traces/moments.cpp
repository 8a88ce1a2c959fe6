// Searches among moments begin where the one before has ended.
#include "dftrace/reading/traces/moments.hpp"

#include <algorithm>
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

namespace {

// The moments at which a thread shows itself in order, each once, and whether a span begins or ends there.
struct Signs {
    std::vector<std::int64_t> at;
    std::vector<bool> own;

    explicit Signs(const SignsOfLife& of) {
        constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
        std::size_t start = 0, end = 0, other = 0;
        at.reserve(of.starts.size() + of.ends.size() + of.others.size());
        for (;;) {
            const std::int64_t starts = start < of.starts.size() ? of.starts[start] : never;
            const std::int64_t ends = end < of.ends.size() ? of.ends[end] : never;
            const std::int64_t others = other < of.others.size() ? of.others[other] : never;
            const std::int64_t next = std::min({starts, ends, others});
            if (next == never) return;
            if (at.empty() || at.back() != next) {
                at.push_back(next);
                own.push_back(false);
            }
            if (starts == next || ends == next) own.back() = true;
            start += starts == next;
            end += ends == next;
            other += others == next;
        }
    }
};

}  // namespace

std::vector<Silence> broken_silences(const SignsOfLife& given, const AwaitedCalls& calls, std::int64_t soon) {
    const Signs signs(given);
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
