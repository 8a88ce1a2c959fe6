#include "dftrace/index/set_back.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <unordered_map>

namespace dftrace {

namespace {

// What goes back more often has no order at all; what goes back for less are lines that came late.
constexpr std::uint64_t most_places = 3;
constexpr std::uint64_t fewest_spans = 10;
constexpr std::int64_t hour_ns = 3'600'000'000'000;

// From the year 2000 to 2043: others are no dates.
constexpr std::int64_t earliest_ns = 946'684'800'000'000'000, latest_ns = std::int64_t{1} << 61;

enum class Moment { no_date, date, too_late };

Moment moment_of(const CoveredTime::Span& span) noexcept {
    if (span.duration > latest_ns - span.start) return Moment::too_late;
    return span.start < earliest_ns ? Moment::no_date : Moment::date;
}

struct Order {
    std::int64_t begun = std::numeric_limits<std::int64_t>::min();  // the latest that has
    std::int64_t far = 0;
    std::uint64_t places = 0, spans_back = 0;
    bool none = false;

    void leave() noexcept {
        none |= spans_back > 0 && spans_back < fewest_spans;
        spans_back = 0;
    }
    void add(const CoveredTime::Span& span) noexcept {
        if (begun >= 0 && span.start + span.duration < begun - hour_ns) {
            if (spans_back++ == 0) {
                ++places;
                far = std::max(far, begun - span.start);
            }
        } else {
            leave();
        }
        begun = std::max(begun, span.start);
    }
};

}  // namespace

SetBack set_back(const std::vector<CoveredTime::Span>& spans_of_lines) {
    std::size_t dates = 0, others = 0;
    for (const CoveredTime::Span& span : spans_of_lines) {
        const Moment moment = moment_of(span);
        dates += moment == Moment::date;
        others += moment == Moment::no_date;
    }
    const Moment believed = dates >= others ? Moment::date : Moment::no_date;
    std::unordered_map<std::uint32_t, Order> tracks;
    for (const CoveredTime::Span& span : spans_of_lines)
        if (span.start >= 0 && moment_of(span) == believed) tracks[span.track].add(span);
    SetBack found;
    for (auto& [track, order] : tracks) {
        order.leave();
        if (order.none || order.places > most_places) continue;
        found.ns = std::max(found.ns, order.far);
        found.places = std::max(found.places, order.places);
    }
    return found;
}

}  // namespace dftrace
