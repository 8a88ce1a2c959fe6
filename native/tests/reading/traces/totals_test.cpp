// Of what wall time the figures of a name are, and what the names of a category add up to.
#include "dftrace/reading/traces/totals.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

std::string span(const char* category, const char* name, int start, int duration) {
    return std::string(R"({"id":4,"name":")") + name + R"(","cat":")" + category +
           R"(","pid":7,"tid":8,"ts":)" + std::to_string(start) + R"(.000,"dur":)" +
           std::to_string(duration) + R"(.000,"ph":"X","args":{"hhash":"08cf3707b570dbec"}})" + "\n";
}

// Adds a process by one of the readers.
void add(Totals& totals, std::size_t reader, const std::string& lines, std::optional<std::int64_t> wall) {
    PlainText text;
    std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
    text.close(lines.size());
    totals.scanner(reader).scan(text, totals.rows(reader));
    totals.add_in_order(reader);
    totals.add(reader, reader);
    CHECK(!totals.end_process());
    totals.add_wall(wall);
}

const CategoryFigures* find(const std::vector<CategoryFigures>& rows, const std::string& category,
                            bool bodies) {
    for (const CategoryFigures& row : rows)
        if (row.category == category && row.bodies == bodies) return &row;
    return nullptr;
}

}  // namespace

TEST("wall time is that of the processes with such spans") {
    Totals totals(2, std::size_t{1} << 20);
    add(totals, 0, span("compute", "forward", 0, 4) + span("compute", "loss", 5, 1), 6000);
    add(totals, 1, span("compute", "forward", 0, 2) + span("io", "read", 3, 1), 4000);
    std::size_t all = 0;
    for (const SpanFigures& row : totals.spans(10, all)) {
        const std::string& name = row.label->name;
        CHECK(row.wall == std::optional<WideNs>(name == "forward" ? 10000 : name == "loss" ? 6000 : 4000));
    }
    CHECK_EQ(all, 3u);
    // Where one of them does not say it, it is not known; of the others it is.
    add(totals, 0, span("io", "read", 0, 1), std::nullopt);
    for (const SpanFigures& row : totals.spans(10, all))
        CHECK_EQ(row.wall.has_value(), row.label->name != "read");
}

TEST("a category is all of its names, without the bodies of its loops") {
    Totals totals(1, std::size_t{1} << 20);
    std::string lines;
    // Few of each name, and too many of all to be kept as they are.
    for (int at = 0; at < 100; ++at)
        lines += span("data", at % 2 ? "item" : "read", 2 * at, 1) + span("data", ".block", 2 * at + 1, 1);
    lines += span("data", "scan.block", 0, 300);
    add(totals, 0, lines, 300000);
    std::size_t all = 0;
    const std::vector<CategoryFigures> rows = totals.categories(10, all);
    CHECK_EQ(all, 2u);
    // The one with more time comes first.
    CHECK(rows.front().bodies);
    const CategoryFigures* const work = find(rows, "data", false);
    const CategoryFigures* const bodies = find(rows, "data", true);
    CHECK(work && bodies);
    CHECK_EQ(work->spans.count, 200u);
    CHECK(work->spans.total == 200000 && work->spans.self == std::optional<WideNs>(200000));
    CHECK(bodies->spans.self == std::optional<WideNs>(100000));
    CHECK(work->spans.wall == std::optional<WideNs>(300000));
    CHECK_EQ(work->spans.p50, 1000.0);
    CHECK_EQ(totals.categories(1, all).size(), 1u);
    CHECK_EQ(all, 2u);
}
