// Numbers of lines as nanoseconds: those that are exact, and those beyond all times.
#include "dftrace/reading/traces/general_line.hpp"

#include <string>

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
