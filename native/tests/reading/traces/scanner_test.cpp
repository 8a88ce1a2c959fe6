// Numbers of lines as nanoseconds: those that are exact, and those beyond all times; lines after others of
// their name.
#include "dftrace/reading/traces/scanner.hpp"

#include <cstring>
#include <string>

#include "dftrace/reading/traces/general_line.hpp"

#include "check.hpp"

using namespace dftrace;

TEST("microseconds are nanoseconds exactly") {
    CHECK_EQ(ns_of_micros("17.466").value(), 17466);
    CHECK_EQ(ns_of_micros("0.0005").value(), 1);
    CHECK_EQ(ns_of_micros("0.00049999").value(), 0);
    CHECK_EQ(ns_of_micros("-2.5").value(), -2500);
    CHECK_EQ(ns_of_micros("1e3").value(), 1'000'000);
    CHECK_EQ(ns_of_micros("12E-4").value(), 1);
    CHECK_EQ(ns_of_micros("4600000000000000").value(), 4'600'000'000'000'000'000);
    CHECK_EQ(ns_of_micros("0e99999999999").value(), 0);
    for (const char* much : {"4600000000000000.001", "9999999999999999999", "1e99999999999", "1e16"})
        CHECK(!ns_of_micros(much));
}

TEST("what is beyond all times is the last of them or the first, and no length") {
    const std::string event = R"({"ph":"X","name":"a","ts":)";
    const std::int64_t most = most_micros * 1000;
    CHECK_EQ(read_general_line(event + "4611686018427387904}").start, most);
    CHECK_EQ(read_general_line(event + "\"-1e99\",\"dur\":1e99}").start, -most);
    CHECK_EQ(read_general_line(event + "1,\"dur\":1e99}").duration, -1);
    CHECK_EQ(read_general_line(event + "null}").start, no_time);
}

TEST("a line is read by what it says, whatever the one before it with its name said") {
    const auto line = [](const std::string& members) {
        return R"({"id":1,"name":"all_reduce","cat":"comm","pid":1,"tid":2,"ts":3,"dur":4,"ph":"X",)"
               R"("args":{"hhash":"0","p_idx":5,"level":1)" +
               members + "}}\n";
    };
    const std::string all[] = {
        R"(,"group":"0","step":1,"late_us":300.000)",
        R"(,"group":"0","step":12345,"late_us":0.5)",
        R"(,"group":"0","step":1)",
        R"(,"group":"0","step":12345)",
        R"(,"group":"0","step":-1e-9,"late_us":300.000,"more":[1,2])",
        R"(,"group":"0","step":"1","late_us":300.000)",
        R"(,"group":"a:1","12":1,"late_us":1)",
        R"(,"group":"a:234","12":12345,"late_us":1)",
        R"(,"group":"a:\"","12":12345,"late_us":1)",
        R"(,"group":"\u0041:1","12":2)",
        // None of these is JSON.
        R"(,"group":"0","step":01,"late_us":300.000)",
        R"(,"group":"0","step":-,"late_us":300.000)",
        R"(,"group":"0","step":1.,"late_us":300.000)",
        R"(,"group":"0","step":1e,"late_us":300.000)",
        R"(,"group":"0","step":1"late_us":300.000)",
        R"(,"group":"0","step":1,"late_us":300.000},{)",
        R"(,"group":"0","step":1,"late_us":300.000,)",
        "",
    };
    for (const std::string& first : all)
        for (const std::string& second : all) {
            const std::string lines = line(first) + line(second) + line(first);
            PlainText text;
            std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
            text.close(lines.size());
            Budget budget(1 << 20);
            Labels labels(budget);
            Rows rows;
            Scanner(labels).scan(text, rows);
            std::size_t row = 0;
            for (const std::string& members : {first, second, first}) {
                std::string alone = line(members);
                alone.pop_back();
                const GeneralLine event = read_general_line(alone);
                if (event.kind != GeneralLine::Kind::event) continue;
                CHECK(row < rows.size);
                CHECK_EQ(text.view().substr(rows.args_at[row], rows.args_bytes[row]), event.args);
                ++row;
            }
            CHECK_EQ(rows.size, row);
        }
}
