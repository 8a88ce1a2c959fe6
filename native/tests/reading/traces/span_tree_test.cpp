// Parents and own times of spans, as a look at each pair has them.
#include "dftrace/reading/traces/span_tree.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

struct Span {
    std::int64_t start, duration;
    std::uint32_t track;
    std::uint64_t id;
    std::int64_t end() const { return start + duration; }
};

Rows rows_of(const std::vector<Span>& spans) {
    Rows rows;
    rows.make_room(spans.size());
    for (const Span& span : spans) {
        rows.start[rows.size] = span.start;
        rows.duration[rows.size] = span.duration;
        rows.track[rows.size] = span.track;
        rows.id[rows.size++] = span.id;
    }
    return rows;
}

bool cut(const Span& a, const Span& b) {
    return a.track == b.track && a.start < b.start && b.start < a.end() && a.end() < b.end();
}

}  // namespace

TEST("each span has the one that ends first of those around it, and is none of its own time") {
    std::mt19937 noise(11);
    const auto upto = [&](unsigned most) { return static_cast<std::int64_t>(noise() % most); };
    int told = 0, refused = 0;
    for (int round = 0; round < 4000; ++round) {
        std::vector<Span> spans(1 + noise() % 7);
        for (Span& span : spans) span = {upto(30), 1 + upto(12), static_cast<std::uint32_t>(upto(2)), 0};
        std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
            return a.end() != b.end() ? a.end() < b.end() : a.start > b.start;
        });
        bool cuts = false;
        for (const Span& a : spans)
            for (const Span& b : spans) cuts |= cut(a, b);
        SpanTree tree(true);
        std::vector<std::int64_t> own;
        // In two blocks.
        const auto half = spans.begin() + static_cast<std::ptrdiff_t>(noise() % (spans.size() + 1));
        const bool well =
            tree.add(rows_of({spans.begin(), half}), own) && tree.add(rows_of({half, spans.end()}), own);
        CHECK_EQ(well, !cuts);
        ++(well ? told : refused);
        if (!well) continue;
        std::vector<std::int64_t> truth;
        for (const Span& span : spans) truth.push_back(span.duration);
        for (std::size_t i = 0; i < spans.size(); ++i) {
            std::int32_t around = -1;
            for (std::size_t j = i + 1; j < spans.size() && around < 0; ++j)
                if (spans[j].track == spans[i].track && spans[j].start <= spans[i].start)
                    around = static_cast<std::int32_t>(j);
            CHECK_EQ(tree.parents()[i], around);
            if (around >= 0) truth[static_cast<std::size_t>(around)] -= spans[i].duration;
        }
        CHECK(own == truth);
    }
    CHECK(told > 500);
    CHECK(refused > 500);
}

TEST("spans whose order does not tell which lies in which are refused") {
    const auto told = [](const std::vector<Span>& spans) {
        SpanTree tree(true);
        std::vector<std::int64_t> own;
        return tree.add(rows_of(spans), own);
    };
    CHECK(told({{5, 5, 0, 2}, {5, 5, 0, 1}}));
    CHECK(!told({{5, 5, 0, 1}, {5, 5, 0, 2}}));   // the first is around the second
    CHECK(!told({{0, 10, 0, 1}, {5, 5, 0, 2}}));  // it came too early
    CHECK(!told({{5, 5, 0, 2}, {1, 2, 0, 1}}));
    CHECK(!told({{0, 5, 0, 1}, {5, 0, 0, 2}}));  // without length, at the end of another
    CHECK(told({{5, 0, 0, 1}, {5, 5, 0, 2}}));
    CHECK(!told({{5, 0, 0, 2}, {1, 4, 0, 1}, {5, 5, 0, 3}}));
    CHECK(!told({{5, 0, 0, 2}, {1, 4, 0, 1}, {7, 0, 0, 4}, {5, 5, 0, 3}}));
    CHECK(told({{-1, 5, 0, 1}, {-1, 2, 0, 2}}));  // without a time
}
