// What is plainly right is counted, and everything else is given back, line by line.
#include "dftrace/reading/traces/checking.hpp"

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

std::string span(int start, int duration, const std::string& more = "") {
    return R"({"id":4,"name":"forward","cat":"compute","pid":7,"tid":8,"ts":)" + std::to_string(start) +
           R"(.000,"dur":)" + std::to_string(duration) +
           R"(.000,"ph":"X","args":{"hhash":"08cf3707b570dbec","p_idx":3,"level":3)" + more + "}}\n";
}

struct Seen {
    Checking checking{100};
    std::vector<std::string> given;

    // The lines behind the first are judged by its style.
    void read(const std::string& lines, TimeStyle style = TimeStyle::three_decimals) {
        LineWalk& walk = checking.walk();
        PlainText& text = walk.next_text();
        std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
        text.close(lines.size());
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
