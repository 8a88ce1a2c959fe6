// The figures of an index line, held against those that are added up one by one.
#include "dftrace/writing/part_index.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

// The last two are nodes of one name.
const std::vector<std::string> names = {"", R"("name":"a","cat":"x")", R"("name":"b","cat":"x")",
                                        R"("name":"c","cat":"y")", R"("name":"c","cat":"y")"};

struct Made {
    std::uint32_t node;
    std::int64_t start, end, self;
    std::uint64_t parent;
};

// A span behind those inside of it, as they end; moves `now` to its end.
void nest(std::vector<Made>& spans, std::int64_t& now, std::uint64_t parent, int depth, std::mt19937& noise) {
    const std::uint64_t id = noise();
    const std::int64_t start = now;
    std::int64_t covered = 0;
    for (unsigned inside = depth ? noise() % 4 : 0; inside; --inside) {
        const std::int64_t begun = now += noise() % 3;
        nest(spans, now, noise() % 5 ? id : no_parent, depth - 1, noise);
        covered += now - begun;
    }
    if (noise() % 4) now += noise() % 300;
    spans.push_back({static_cast<std::uint32_t>(1 + noise() % 4), start, now, now - start - covered, parent});
}

struct Figures {
    std::int64_t count = 0, sum = 0, self = 0, least = INT64_MAX, greatest = 0;
    std::string exact;

    void add(const Made& span) {
        const std::int64_t duration = span.end - span.start;
        ++count;
        sum += duration;
        self += span.self;
        least = std::min(least, duration);
        greatest = std::max(greatest, duration);
        exact += (exact.empty() ? "" : ",") + std::to_string(duration);
    }
    std::string told(const std::string& name) const {
        return "{" + name + ",\"count\":" + std::to_string(count) + ",\"sum_ns\":" + std::to_string(sum) +
               ",\"self_ns\":" + std::to_string(self) + ",\"min_ns\":" + std::to_string(least) +
               ",\"max_ns\":" + std::to_string(greatest) + ",\"exact\":[" + exact + "]}";
    }
};

}  // namespace

TEST("figures of nested spans on tracks that come and go are those of the spans one by one") {
    std::mt19937 noise(9);
    int told = 0;
    for (int round = 0; round < 300; ++round) {
        const bool at_once = round % 2 == 0;
        PartIndex index(!at_once);
        std::vector<Made> tracks[3];
        std::vector<std::string> order;  // of names, as they were met
        std::map<std::string, Figures> figures;
        std::uint64_t lines = 0, instants = 0, gathered = 0;
        BlockReach reach, reach_gathered;
        for (int turn = 0; turn < 8; ++turn) {
            const auto at = static_cast<std::uint32_t>(noise() % 3), tid = 70 + at;
            std::vector<Made>& spans = tracks[at];
            if (spans.empty()) {
                // Each time from the beginning on: whatever was there before is forgotten.
                std::int64_t now = noise() % 100;
                nest(spans, now, 0, 3, noise);
                std::reverse(spans.begin(), spans.end());
            }
            for (std::size_t some = 1 + noise() % 12; some && !spans.empty(); --some, ++gathered) {
                const Made& span = spans.back();
                const std::string& name = names[span.node];
                index.add_span(
                    span.node, [&] { return std::string_view(name); }, tid, span.start, span.end,
                    span.parent);
                if (!figures.contains(name)) order.push_back(name);
                figures[name].add(span);
                reach_gathered.add(span.start, span.end);
                spans.pop_back();
            }
            if (spans.empty()) index.forget_track(tid);
            if (noise() % 3 == 0) {
                index.add_other(1, names[1], 'i');
                if (!figures.contains(names[1])) order.push_back(names[1]);
                figures[names[1]];
                ++instants, ++gathered;
            }
            if (turn == 7 || noise() % 2) {
                index.landed(gathered, reach_gathered);
                reach.add(std::exchange(reach_gathered, {}));
                lines += std::exchange(gathered, 0);
            }
        }
        std::string wanted = ",\"bytes\":5,\"lines\":" + std::to_string(lines) +
                             ",\"first_ns\":" + std::to_string(reach.first_ns) +
                             ",\"last_ns\":" + std::to_string(reach.last_ns) + ",\"spans\":[";
        const char* between = "";
        for (const std::string& name : order)
            if (figures[name].count) wanted += std::exchange(between, ",") + figures[name].told(name), ++told;
        wanted += "],\"others\":[";
        if (instants) wanted += "{\"ph\":\"i\"," + names[1] + ",\"count\":" + std::to_string(instants) + "}";
        const std::string made = index.members(5, 1 << 20);
        CHECK_EQ(made.substr(0, made.find("],\"tracks\"")), wanted);
    }
    CHECK(told > 300);
}

TEST("there is no index of spans in another order, of such that cut others, or beyond all years") {
    const auto members_of = [](const std::vector<Made>& spans) {
        PartIndex index;
        for (const Made& span : spans)
            index.add_span(
                span.node, [] { return std::string_view(names[1]); }, 7, span.start, span.end, span.parent);
        index.landed(spans.size(), {});
        return index.members(5, index.room(1 << 30, true));
    };
    CHECK(!members_of({{1, 0, 5, 0, 1}, {1, 5, 9, 0, 1}, {1, 0, 10, 0, 0}}).empty());
    CHECK(members_of({{1, 0, 5, 0, 1}, {1, 0, 4, 0, 1}}).empty());
    CHECK(members_of({{1, 0, 5, 0, 1}, {1, 6, 9, 0, 1}, {1, 3, 10, 0, 0}}).empty());
    CHECK(members_of({{1, 0, INT64_MAX, 0, 1}}).empty());
    CHECK(members_of({{1, INT64_MIN, INT64_MAX, 0, 1}}).empty());
}

TEST("a name that becomes known later is told as each line has it") {
    PartIndex index;
    std::string_view name;
    for (const std::int64_t at : {0, 10, 20}) {
        index.add_span(
            3, [&] { return name; }, 7, at, at + 1, 0);
        if (at == 0) name = names[1];
    }
    index.landed(3, {});
    const std::string made = index.members(5, 1 << 20);
    CHECK(made.find(R"("name":"unknown","cat":"unknown","count":1,)") != made.npos);
    CHECK(made.find(R"("name":"a","cat":"x","count":2,)") != made.npos);
}

TEST("spans that are gathered when a part begins belong to it, or there is no index from there on") {
    const auto members_of = [](bool waits_for_blocks, int before) {
        PartIndex index(waits_for_blocks);
        const auto add = [&index](int spans, std::int64_t from) {
            for (std::int64_t at = from; at < from + spans; ++at)
                index.add_span(
                    1, [] { return std::string_view(names[1]); }, 7, 2 * at, 2 * at + 1, 0);
        };
        add(before, 0);
        index.landed(static_cast<std::uint64_t>(before), {.first_ns = 0, .last_ns = 2 * before});
        add(5000, before);
        index.begin_part();
        index.landed(5000, {.first_ns = 2 * before, .last_ns = 10'000});
        return index.members(5, 1 << 20);
    };
    CHECK(members_of(true, 40).find("\"lines\":5000,\"first_ns\":80,\"last_ns\":10000,\"spans\":[{" +
                                    names[1] + ",\"count\":5000,") != std::string::npos);
    CHECK_EQ(members_of(false, 40).find("\"spans\":[{"), std::string::npos);
}

TEST("an index says from when to when events are: unfinished ones by their start, and not of metadata") {
    const auto members_of = [](const BlockReach& first, const BlockReach& second) {
        PartIndex index;
        index.add_other(1, names[1], 'i');
        index.landed(1, first);
        index.add_other(1, names[1], 'B');
        index.landed(1, second);
        return index.members(5, 1 << 20);
    };
    BlockReach open;
    open.add(500, 600);
    open.add_from(700);
    CHECK(members_of({.first_ns = 5, .last_ns = 9}, open).find(R"("first_ns":5,"last_ns":700,)") !=
          std::string::npos);
    CHECK_EQ(members_of({}, {}).find("first_ns"), std::string::npos);
    CHECK_EQ(members_of({.first_ns = 5, .last_ns = 9}, BlockReach::everywhere()).find("first_ns"),
             std::string::npos);
}
