// The time of spans inside of spans, against a look at each pair of them.
#include "dftrace/index/covered_time.hpp"

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

using Span = CoveredTime::Span;

// Of each, in their order: what those take that no other span encloses more closely.
std::vector<std::int64_t> by_pairs(const std::vector<Span>& spans) {
    std::vector<std::int64_t> covered(spans.size(), 0);
    std::vector<std::vector<Span>> inside(spans.size());
    for (std::size_t i = 0; i < spans.size(); ++i)
        for (std::size_t outer = i + 1; spans[i].duration && outer < spans.size(); ++outer)
            if (spans[outer].duration && spans[outer].start <= spans[i].start) {
                inside[outer].push_back(spans[i]);
                break;
            }
    for (std::size_t outer = 0; outer < spans.size(); ++outer) {
        std::sort(inside[outer].begin(), inside[outer].end(),
                  [](const Span& a, const Span& b) { return a.start < b.start; });
        std::int64_t until = INT64_MIN;
        for (const Span& span : inside[outer]) {
            const std::int64_t end = span.start + span.duration;
            covered[outer] += std::max<std::int64_t>(0, end - std::max(until, span.start));
            until = std::max(until, end);
        }
    }
    return covered;
}

// What they take together, each moment once.
std::int64_t together(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start < b.start; });
    std::int64_t all = 0, until = INT64_MIN;
    for (const Span& span : spans) {
        const std::int64_t end = span.start + span.duration;
        all += std::max<std::int64_t>(0, end - std::max(until, span.start));
        until = std::max(until, end);
    }
    return all;
}

std::int64_t next(CoveredTime& time, std::uint32_t track, std::int64_t start, std::int64_t duration,
                  std::uint64_t parent) {
    return time.of(time.track(track), start, start + duration, parent);
}

bool before(const Span& a, const Span& b) {
    return std::tuple(a.start + a.duration, b.start) < std::tuple(b.start + b.duration, a.start);
}

}  // namespace

TEST("spans in the order of their ends are told at once, or their track is put aside") {
    std::mt19937 noise(7);
    const auto upto = [&](unsigned most) { return static_cast<std::int64_t>(noise() % most); };
    int told = 0;
    for (int round = 0; round < 3000; ++round) {
        std::vector<Span> spans(1 + noise() % 12);
        for (Span& span : spans) span = {upto(20), upto(10), 0, 0};
        std::stable_sort(spans.begin(), spans.end(), before);
        const std::vector<std::int64_t> truth = by_pairs(spans);
        CoveredTime time;
        for (std::size_t i = 0; i < spans.size(); ++i) {
            // Parents as they come, right or wrong: they may cost a track, and no figure.
            const std::uint64_t parent = noise() % 3 ? noise() % 2 : no_parent;
            const std::int64_t covered = next(time, 3, spans[i].start, spans[i].duration, parent);
            if (time.is_aside(3)) break;
            CHECK_EQ(covered, truth[i]);
            ++told;
        }
        CHECK_EQ(time.taken(3), time.is_aside(3) ? 0 : together(spans));
    }
    CHECK(told > 10'000);
}

TEST("spans in disorder are noticed, and sorted") {
    std::mt19937 noise(8);
    const auto upto = [&](unsigned most) { return static_cast<std::int64_t>(noise() % most); };
    for (int round = 0; round < 1000; ++round) {
        std::vector<Span> spans(2 + noise() % 12);
        for (std::size_t i = 0; i < spans.size(); ++i)
            spans[i] = {upto(20), 1 + upto(10), static_cast<std::uint32_t>(i), 0};
        std::vector<Span> sorted = spans;
        std::stable_sort(sorted.begin(), sorted.end(), before);
        const std::vector<std::int64_t> truth = by_pairs(sorted);
        CoveredTime time;
        for (const Span& span : spans) next(time, 0, span.start, span.duration, no_parent);
        const bool in_order = std::is_sorted(spans.begin(), spans.end(), before);
        CHECK_EQ(time.any_aside(), !in_order);
        std::vector<std::int64_t> told(spans.size(), -1);
        CoveredTime::sort_and_tell(
            spans, [&](const Span& span, std::int64_t ns) { told[span.label] = ns; },
            [&](std::uint32_t, std::int64_t ns) { CHECK_EQ(ns, together(sorted)); });
        for (std::size_t i = 0; i < sorted.size(); ++i) CHECK_EQ(told[sorted[i].label], truth[i]);
    }
}

TEST("a track stays aside when its spans come again, and not those of another process") {
    CoveredTime time;
    next(time, 0, 10, 5, 0);
    CHECK_EQ(next(time, 0, 1, 2, 0), CoveredTime::not_known);
    CHECK_EQ(next(time, 1, 1, 2, 0), 0);
    time.begin_again();
    CHECK(time.is_aside(0) && !time.is_aside(1));
    CHECK_EQ(next(time, 0, 10, 5, 0), CoveredTime::not_known);
    time.forget();
    CHECK(!time.any_aside());
    CHECK_EQ(next(time, 0, 1, 2, 0), 0);
}
