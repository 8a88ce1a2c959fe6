// Members of arguments as columns; columns packed and unpacked; places among moments that rise.
#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "dftrace/reading/traces/argument_columns.hpp"
#include "dftrace/reading/traces/call_sets.hpp"
#include "dftrace/reading/traces/moments.hpp"
#include "dftrace/reading/traces/narrow_column.hpp"
#include "dftrace/reading/traces/packed_columns.hpp"
#include "dftrace/reading/traces/scanner.hpp"

using namespace dftrace;

TEST("members are taken of the events that are asked for") {
    std::string lines;
    for (const char* args : {R"({"seq":5,"group":"0","late_us":1592.846})", R"({"seq": 7, "group":"a\"b"})",
                             R"({"x":{"seq":3},"seq":"4","late_us":-1})", "{}"})
        lines += R"({"id":1,"name":"n","cat":"c","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":)" +
                 std::string(args) + "}\n";
    Budget budget(1 << 20);
    Labels labels(budget);
    Scanner scanner(labels);
    PlainText text;
    std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
    text.close(lines.size());
    Rows rows;
    scanner.scan(text, rows);
    using Form = WantedMember::Form;
    const std::vector<std::uint8_t> one{1}, none{0};
    ArgumentColumns found({{"seq", Form::whole}, {"late_us", Form::micros}, {"group", Form::text}}, 0,
                          budget);
    // Again: what is known of the names by then changes nothing, and texts go on.
    for (int round = 0; round < 2; ++round) {
        found.take(rows, rows.ph, text.view(), one);
        CHECK((found.rows() == std::vector<std::uint32_t>{0, 1, 2, 3}));
        CHECK((found.values() == std::vector<std::int64_t>{5, 1'592'846, 0, 7, no_time, 1, 4, -1000, no_time,
                                                           no_time, no_time, no_time}));
        CHECK((found.texts() == std::vector<std::string>{"0", "a\"b"}));
    }
    found.take(rows, rows.ph, text.view(), none);
    CHECK(found.rows().empty());
    ArgumentColumns of_counters({{"", Form::all}}, 'C', budget), all({{"", Form::all}}, 'X', budget);
    of_counters.take(rows, rows.ph, text.view(), one);
    CHECK(of_counters.rows().empty());
    all.take(rows, rows.ph, text.view(), one);
    CHECK((all.values() == std::vector<std::int64_t>{0, 1, 2, 3}));
    CHECK_EQ(all.texts()[3], std::string("{}"));
}

TEST("members of arguments are those of each event, whatever those of its name before told") {
    const std::string some[] = {
        R"("seq":1,"group":"0","late_us":300.000)",
        R"("seq":123456789,"group":"0","late_us":0.5)",
        R"("seq":12345678,"group":"0","late_us":1e3)",
        R"("seq":-7,"group":"0","late_us":-1.250)",
        R"("seq":"1","group":"0","late_us":300.000)",
        R"("seq":1,"group":"1","late_us":300.000)",
        R"("seq":1,"group":2,"late_us":300.000)",
        R"("seq":1,"group":12345,"late_us":300.000)",
        R"("seq":1,"group":"a:1","seq":2)",
        R"("seq":1,"group":"a:1","seq":"x")",
        R"("seq":true,"group":null)",
        R"("seq":9999999999999999999,"group":"-1")",
        R"("more":1,"s:1":2,"seq":3)",
        R"("s\u0065q":4,"group":"0")",
        R"("seq":[1,2],"group":"0")",
        R"("group":"0","seq":1)",
        "",
    };
    using Form = WantedMember::Form;
    const std::vector<WantedMember> wanted{
        {"seq", Form::whole}, {"late_us", Form::micros}, {"group", Form::text}};
    const std::vector<std::uint8_t> one{1};
    const auto told = [&](ArgumentColumns& by, const std::vector<std::string>& members) {
        std::string lines;
        for (const std::string& each : members)
            lines += R"({"id":1,"name":"n","cat":"c","pid":1,"tid":1,"ts":1,"dur":1,"ph":"X","args":{)" +
                     each + "}}\n";
        Budget budget(1 << 20);
        Labels labels(budget);
        PlainText text;
        std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
        text.close(lines.size());
        Rows rows;
        Scanner(labels).scan(text, rows);
        by.take(rows, rows.ph, text.view(), one);
        std::vector<std::string> found;
        for (std::size_t at = 0; at < by.values().size(); ++at) {
            const std::int64_t value = by.values()[at];
            const bool is_text = at % 3 == 2 && value != no_time;
            found.push_back(is_text ? by.texts()[static_cast<std::size_t>(value)] : std::to_string(value));
        }
        return found;
    };
    Budget budget(1 << 20);
    ArgumentColumns all(wanted, 0, budget);
    for (const std::string& first : some)
        for (const std::string& second : some) {
            // Often enough that what is known of the first, too, is that of the second.
            const std::vector<std::string> lines{first,  second, first,  second,
                                                 second, second, second, second};
            std::vector<std::string> alone;
            for (const std::string& line : lines) {
                ArgumentColumns by_itself(wanted, 0, budget);
                for (std::string& value : told(by_itself, {line})) alone.push_back(std::move(value));
            }
            CHECK(told(all, lines) == alone);
        }
}

TEST("columns are as narrow as what is in them, whatever comes when") {
    using Form = NarrowColumn::Form;
    constexpr std::array forms{Form::u8, Form::u16, Form::u32};
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        NarrowColumn column{forms};
        std::vector<std::uint32_t> all;
        const std::uint32_t most = round % 3 == 0 ? 1 : round % 3 == 1 ? 256 : 65'537;
        for (auto piece = static_cast<std::uint32_t>(random() % 5); piece > 0; --piece) {
            std::vector<std::uint32_t> more(random() % 40);
            for (std::uint32_t& one : more)
                one = static_cast<std::uint32_t>(random() % most + (piece == 1 && round % 2));
            column.add(more.data(), more.size());
            all.insert(all.end(), more.begin(), more.end());
            if (random() % 4 == 0) {
                all.resize(random() % (all.size() + 1));
                column.cut(all.size());
            }
        }
        CHECK_EQ(column.rows(), all.size());
        if (column.is_same()) {
            for (const std::uint32_t one : all) CHECK_EQ(column.same(), std::int64_t{one});
            continue;
        }
        const auto at = [&](std::size_t row) -> std::uint32_t {
            if (column.form() == Form::u8) return static_cast<std::uint8_t>(column.data()[row]);
            if (column.form() == Form::u16) return reinterpret_cast<const std::uint16_t*>(column.data())[row];
            return reinterpret_cast<const std::uint32_t*>(column.data())[row];
        };
        for (std::size_t row = 0; row < all.size(); ++row) CHECK_EQ(at(row), all[row]);
    }
}

TEST("columns come back and damaged ones do not lead astray") {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    const std::vector<std::vector<std::int64_t>> columns{
        {1'000'000, 1'000'500, 999'000}, {}, {most, -most - 1, 0}, {-1, -1}};
    const std::vector<std::span<const std::int64_t>> given(columns.begin(), columns.end());
    std::vector<std::size_t> lengths;
    std::vector<std::int64_t> all;
    for (const auto& column : columns) {
        lengths.push_back(column.size());
        all.insert(all.end(), column.begin(), column.end());
    }
    const std::string packed = pack_columns(given);
    std::vector<std::int64_t> found(all.size());
    CHECK(unpack_columns(packed, lengths, found.data()));
    CHECK(found == all);
    // Rows of equal length, each column to a place of its own or to none.
    const std::vector<std::int64_t> rising{7, 9, 1 << 20}, same{-4, -4, -4}, wide{most, -most - 1, 0};
    const std::string rows = pack_columns(std::vector<std::span<const std::int64_t>>{rising, same, wide});
    std::vector<std::int64_t> one(3), other(3);
    const std::vector<std::int64_t*> into{one.data(), nullptr, other.data()};
    std::vector<ColumnBounds> bounds(3);
    UnpackedRows unpacked;
    const std::uint32_t check = libdeflate_crc32(0, rows.data(), rows.size());
    CHECK(unpacked.take(rows, check, 3, into, bounds.data()));
    CHECK(one == rising && other == wide);
    CHECK(bounds[0].first == 7 && bounds[0].lowest == 7 && bounds[0].greatest == 1 << 20);
    CHECK(bounds[0].least_step == 2 && bounds[1].first == -4 && bounds[1].least_step == 0);
    CHECK(bounds[2].lowest == -most - 1 && bounds[2].greatest == most);
    CHECK(!unpacked.take(rows, check + 1, 3, into, bounds.data()));
    CHECK(!unpacked.take(rows, check, 2, into, bounds.data()));
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::string harmed = packed.substr(0, random() % (packed.size() + 1));
        if (!harmed.empty()) harmed[random() % harmed.size()] = static_cast<char>(random());
        unpack_columns(harmed, lengths, found.data());
        unpacked.take(harmed, libdeflate_crc32(0, harmed.data(), harmed.size()), 3, into, bounds.data());
    }
}

TEST("places are those of a search each") {
    std::mt19937 random(2);
    std::vector<std::int64_t> moments(500), asked(2000), found(2000);
    for (std::int64_t& one : moments) one = random() % 400;
    std::sort(moments.begin(), moments.end());
    for (std::int64_t& one : asked) one = static_cast<std::int64_t>(random() % 420) - 10;
    for (const bool right : {false, true}) {
        find_places(moments, asked, right, found.data());
        for (std::size_t at = 0; at < asked.size(); ++at) {
            const auto place = right ? std::upper_bound(moments.begin(), moments.end(), asked[at])
                                     : std::lower_bound(moments.begin(), moments.end(), asked[at]);
            CHECK(found[at] == place - moments.begin());
        }
    }
    find_places({}, asked, true, found.data());
    CHECK(found[7] == 0);
}

TEST("the longest silence is broken by the end of a call") {
    const std::vector<std::int64_t> starts{0, 5, 12, 30}, ends{4, 9, 20, 40}, others{6};
    const std::vector<std::int64_t> start{5, 5, 6, 41}, end{13, 20, 12, 50}, late{2, 0, 9, 0},
        until{99, 99, 8, 99};
    const auto found = broken_silences({starts, ends, others},
                                       {start, end, late, until, std::vector<std::uint8_t>{0, 0, 0, 0}}, 10);
    CHECK(found.size() == 2);
    CHECK(found[0].start == 12 && found[0].end == 13 && found[0].call == 0);
    CHECK(found[1].start == 12 && found[1].end == 20 && found[1].call == 1);
    // What another call breaks is no wait for one that is within.
    const auto within = broken_silences({starts, {}, others},
                                        {start, end, late, until, std::vector<std::uint8_t>{1, 1, 1, 1}}, 0);
    CHECK(within.size() == 1 && within[0].start == 6 && within[0].end == 12 && within[0].call == 0);
}

TEST("calls are ordered by counting and what is odd about their sets is told") {
    const std::vector<std::int64_t> keys{2, 0, 2, 5, 0};
    std::vector<std::int64_t> order(5), first;
    CHECK(order_by_keys(keys, 6, order.data(), first));
    CHECK((order == std::vector<std::int64_t>{1, 4, 0, 2, 3} && first == std::vector<std::int64_t>{0, 2, 4}));
    CHECK(!order_by_keys(keys, 5, order.data(), first));
    const std::vector<std::int64_t> rank{0, 1, 2, 0, 0}, none{0}, start{5, 1, 9, 0, 0}, end{9, 4, 9, 1, 1},
        bytes{8, 8, 4, 1, 1}, clock{0, 0, 1};
    const CallColumns calls{{rank.data(), 1}, {none.data(), 0}, {start.data(), 1},
                            {end.data(), 1},  {none.data(), 0}, {bytes.data(), 1}};
    const std::vector<std::int64_t> rows{0, 1, 2, 3, 4}, sets{0, 3};
    std::vector<std::uint8_t> flags(2);
    flag_sets(calls, rows, sets, clock, std::vector<std::uint8_t>{0}, 1, flags.data());
    CHECK(flags[0] == (same_names | mixed_bytes | left_before));
    CHECK(flags[1] == (same_names | rank_twice));
}
