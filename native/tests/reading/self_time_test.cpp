// Self time, held against counting instant by instant.
#include "dftrace/reading/self_time.hpp"

#include <algorithm>
#include <random>
#include <unordered_map>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

using Times = std::unordered_map<std::uint32_t, std::uint64_t>;

// Nanosecond by nanosecond: of the spans that cover it, the one that began last.
Times instant_by_instant(const std::vector<CoveringSpan>& spans, std::uint64_t from, std::uint64_t to) {
    Times found;
    for (std::uint64_t now = from; now < to; ++now) {
        const CoveringSpan* latest = nullptr;
        for (const CoveringSpan& span : spans) {
            if (span.start > now || span.end <= now) continue;
            if (!latest || span.start > latest->start ||
                (span.start == latest->start && span.end < latest->end))
                latest = &span;
        }
        if (latest) ++found[latest->key];
    }
    return found;
}

std::uint64_t at(const Times& times, std::uint32_t key) {
    const auto it = times.find(key);
    return it == times.end() ? 0 : it->second;
}

}  // namespace

TEST("only what lies in the window counts") {
    const Times times = self_times({{0, 100, 1}, {10, 30, 2}, {70, 200, 3}}, 20, 80);
    CHECK_EQ(at(times, 1), 40);
    CHECK_EQ(at(times, 2), 10);
    CHECK_EQ(at(times, 3), 10);
    CHECK(self_times({{0, 10, 1}, {90, 100, 2}}, 20, 80).empty());
    CHECK(self_times({{0, 100, 1}}, 50, 50).empty());
    CHECK(self_times({{0, 100, 1}}, 60, 50).empty());
    CHECK(self_times({{40, 30, 1}, {40, 40, 2}}, 0, 100).empty());
}

TEST("nested spans of any shape are as counted instant by instant") {
    std::mt19937 random(7);
    for (int round = 0; round < 300; ++round) {
        // Ticks of one thread: every beginning and end is a moment of its own.
        std::vector<CoveringSpan> spans;
        std::vector<std::size_t> open;
        std::uint64_t now = 1;
        for (int i = 0; i < 60; ++i) {
            now += random() % 4 + 1;
            if (!open.empty() && random() % 2) {
                spans[open.back()].end = now;
                open.pop_back();
            } else {
                open.push_back(spans.size());
                spans.push_back({now, UINT64_MAX, static_cast<std::uint32_t>(random() % 5)});
            }
        }
        std::shuffle(spans.begin(), spans.end(), random);
        const std::uint64_t from = random() % 100, to = from + random() % 100;
        CHECK(self_times(spans, from, to) == instant_by_instant(spans, from, to));
    }
}

TEST("spans that overlap in any way are as counted instant by instant") {
    std::mt19937 random(11);
    for (int round = 0; round < 500; ++round) {
        std::vector<CoveringSpan> spans;
        for (int i = 0; i < 12; ++i) {
            // Beginnings are apart: of two that begin together it would be open which is meant.
            const std::uint64_t start = static_cast<std::uint64_t>(i) * 10 + random() % 10;
            spans.push_back({start, start + random() % 80, static_cast<std::uint32_t>(i)});
        }
        std::shuffle(spans.begin(), spans.end(), random);
        CHECK(self_times(spans, 15, 130) == instant_by_instant(spans, 15, 130));
    }
}
