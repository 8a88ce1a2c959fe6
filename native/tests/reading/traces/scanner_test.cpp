// Lines as columns: the recorder's layout and any other form give the same, and nothing is read past the end.
#include "dftrace/reading/traces/scanner.hpp"

#include <cstring>
#include <string>

#include "check.hpp"
#include "dftrace/reading/traces/general_line.hpp"

using namespace dftrace;

namespace {

struct Scanned {
    Budget budget{64 << 20};
    Labels labels{budget};
    Scanner scanner{labels};
    PlainText text;
    Rows rows;

    explicit Scanned(const std::string& lines) { scan(lines); }
    void scan(const std::string& lines) {
        std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
        text.close(lines.size());
        scanner.scan(text, rows);
    }
};

}  // namespace

TEST("framing is no line of its own, and what holds no event is counted") {
    const Scanned seen("[\n\n  \n]\nnonsense\n{}\n{\"ph\":\"X\"}\n[1]\n");
    CHECK_EQ(seen.rows.size, 0u);
    CHECK_EQ(seen.rows.lines, 8u);
    CHECK_EQ(seen.rows.unreadable, 4u);
}

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

TEST("more names than there is room for are refused, and no memory is taken for them") {
    std::string lines;
    for (int i = 0; i < 1000; ++i)
        lines += R"({"ph":"i","name":")" + std::to_string(i) + std::string(1000, 'x') + "\"}\n";
    Budget small(100'000);
    Labels labels(small);
    Scanner scanner(labels);
    PlainText text;
    std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
    text.close(lines.size());
    Rows rows;
    bool refused = false;
    try {
        scanner.scan(text, rows);
    } catch (const TooMuch&) {
        refused = true;
    }
    CHECK(refused);
    CHECK(labels.size() < 100);
}
