// What is plainly right is counted, and everything else is given back, line by line; and what spans add up
// to: of what wall time the figures of a name are, and what the names of a category come to.
#include "dftrace/reading/traces/checking.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "check.hpp"
#include "dftrace/reading/traces/totals.hpp"

using namespace dftrace;

namespace {

std::string span_of(const std::string& category, const std::string& name, int start, int duration) {
    return R"({"id":4,"name":")" + name + R"(","cat":")" + category + R"(","pid":7,"tid":8,"ts":)" +
           std::to_string(start) + R"(.000,"dur":)" + std::to_string(duration) +
           R"(.000,"ph":"X","args":{"hhash":"08cf3707b570dbec","p_idx":3,"level":3}})" + "\n";
}

std::string span(int start, int duration) { return span_of("compute", "forward", start, duration); }

void put(PlainText& text, const std::string& lines) {
    std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
    text.close(lines.size());
}

struct Seen {
    Checking checking{100};
    std::vector<std::string> given;

    // The lines behind the first are judged by its style.
    void read(const std::string& lines, TimeStyle style = TimeStyle::three_decimals) {
        LineWalk& walk = checking.walk();
        put(walk.next_text(), lines);
        walk.begin();
        while (checking.step()) {
            given.emplace_back(walk.line());
            CHECK_EQ(lines.substr(walk.bytes_before() - before, given.back().size()), given.back());
            checking.certify(style);
        }
        before += lines.size();
    }
    std::uint64_t before = 0;
};

// Adds a process by one of the readers.
void add(Totals& totals, std::size_t reader, const std::string& lines, std::optional<std::int64_t> wall) {
    PlainText text;
    put(text, lines);
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

TEST("nothing is certified before somebody says so, and nothing in another style") {
    Seen seen;
    const std::string first = span(1, 1);
    seen.read(first + span(2, 1) + span(3, 1));
    CHECK_EQ(seen.given.size(), 1u);
    CHECK_EQ(seen.checking.counts().spans, 2u);
    Seen other;
    other.read(first + span(2, 1) + span(3, 1), TimeStyle::whole_micros);
    CHECK_EQ(other.given.size(), 3u);
    CHECK_EQ(other.checking.walk().lines(), 3u);
}

TEST("a style that changes ends it for good") {
    Seen seen;
    seen.read("[\n" + span(1, 1) + "\n", TimeStyle::three_decimals);
    seen.read("odd\n" + span(2, 1), TimeStyle::none);
    seen.read("odd\n" + span(3, 1), TimeStyle::three_decimals);
    CHECK_EQ(seen.checking.counts().spans, 1u);
    CHECK_EQ(seen.given.size(), 6u);
}

TEST("spans in the order of their ends nest without a second look") {
    Seen seen;
    seen.read("[\n" + span(2, 1) + span(4, 1) + span(1, 8) + span(20, 1));
    CHECK(!seen.checking.end());
    seen.checking.add_span(7, 8, 21'000, NestedTracks::never);
    CHECK(!seen.checking.end());
    seen.checking.add_span(7, 8, 3'000, NestedTracks::never);
    CHECK(seen.checking.end());
}

TEST("of spans that overlap the first by line are told, and as many as there are room for") {
    const std::string text = "[\n" + span(0, 10) + span(5, 10) + span(12, 10) + span(3, 1);
    Seen seen;
    seen.read(text);
    REQUIRE(seen.checking.end());
    seen.before = 0;
    seen.read(text);
    CHECK_EQ(seen.given.size(), 1u);
    CHECK(!seen.checking.end());
    std::vector<NestedTracks::Overlap> first;
    CHECK_EQ(seen.checking.nesting().overlaps(1, first), 1u);
    REQUIRE_EQ(first.size(), 1u);
    CHECK_EQ(first[0].line, 3u);
    CHECK_EQ(first[0].other_line, 2u);
    CHECK_EQ(seen.checking.nesting().collected(), 4u);
}

TEST("what lines add up to, as an index line has it") {
    Seen seen;
    seen.read(span(2, 1) + span(1, 4) + span(9, 2) +
              R"({"id":9,"name":"loss","cat":"counter","pid":7,"tid":8,"ts":9.000,"ph":"C","args":{"a":1}})"
              "\n");
    const std::optional<KnownFigures> told = seen.checking.figures().told();
    REQUIRE(told && told->spans.size() == 1 && told->others.size() == 1 && told->tracks.size() == 1);
    const KnownFigures::Spans& spans = told->spans.front();
    CHECK_EQ(spans.label.category + " " + spans.label.name, "compute forward");
    CHECK_EQ(spans.count, 3u);
    CHECK_EQ(spans.total, 7000);
    CHECK_EQ(spans.self, 6000);
    CHECK_EQ(spans.least, 1000);
    CHECK_EQ(spans.greatest, 4000);
    CHECK(spans.exact && spans.durations == std::vector<std::int64_t>({1000, 4000, 2000}));
    CHECK_EQ(told->others.front().ph, "C");
    CHECK_EQ(told->tracks.front().standing.end, 11000);
    // That is taken in place of the lines, of which there must be as many.
    KnownFigures known = *told;
    Totals totals(1, std::size_t{1} << 20);
    CHECK(!totals.add_known(known));
    known.lines = 4;
    CHECK(totals.add_known(known));
}

TEST("a block that is not what its head says") {
    Seen seen;
    seen.read(span(2, 1) + span(1, 4));
    BlockFacts facts{100, 0, 2, BlockHolds::lines, {1000, 5000}};
    facts.plain_bytes = static_cast<std::uint32_t>(seen.checking.walk().text().size());
    Checking& checking = seen.checking;
    checking.hold_block(facts, 100);
    facts.reach = BlockReach::everywhere();
    checking.hold_block(facts, 100);
    CHECK_EQ(checking.block_fault_count(), 0u);
    facts = {99, 7, 3, BlockHolds::index, {1001, 4999}};
    checking.hold_block(facts, 100);
    CHECK_EQ(checking.block_faults().size(), 6u);
    CHECK_EQ(checking.block_faults()[5].found, 5000);
}

TEST("wall time is that of the processes with such spans") {
    Totals totals(2, std::size_t{1} << 20);
    add(totals, 0, span_of("compute", "forward", 0, 4) + span_of("compute", "loss", 5, 1), 6000);
    add(totals, 1, span_of("compute", "forward", 0, 2) + span_of("io", "read", 3, 1), 4000);
    std::size_t all = 0;
    for (const SpanFigures& row : totals.spans(10, all)) {
        const std::string& name = row.label->name;
        CHECK(row.wall == std::optional<WideNs>(name == "forward" ? 10000 : name == "loss" ? 6000 : 4000));
    }
    CHECK_EQ(all, 3u);
    // Where one of them does not say it, it is not known; of the others it is.
    add(totals, 0, span_of("io", "read", 0, 1), std::nullopt);
    for (const SpanFigures& row : totals.spans(10, all))
        CHECK_EQ(row.wall.has_value(), row.label->name != "read");
}

TEST("a category is all of its names, without the bodies of its loops") {
    Totals totals(1, std::size_t{1} << 20);
    std::string lines;
    // Few of each name, and too many of all to be kept as they are.
    for (int at = 0; at < 100; ++at)
        lines +=
            span_of("data", at % 2 ? "item" : "read", 2 * at, 1) + span_of("data", ".block", 2 * at + 1, 1);
    lines += span_of("data", "scan.block", 0, 300);
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
