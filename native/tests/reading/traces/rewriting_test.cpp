// Lines of another process at another time: what is put in their place, and what stays.
#include "dftrace/reading/traces/rewriting.hpp"

#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

constexpr std::string_view host = R"("args":{"hhash":"00000000000000ff","p_idx":0,"level":1)";

std::string span(std::string_view name, std::string_view times, std::string_view more = "") {
    return R"({"id":1,"name":")" + std::string(name) + R"(","cat":"compute","pid":7,"tid":7,)" +
           std::string(times) + R"(,"ph":"X",)" + std::string(host) + std::string(more) + "}}\n";
}

// What becomes of a block; the lines that are given are left out.
std::string rewritten(Rewriting& rewriting, std::string_view text) {
    PlainText& into = rewriting.walk().next_text();
    std::memcpy(into.room_for(text.size()), text.data(), text.size());
    into.close(text.size());
    rewriting.walk().begin();
    while (rewriting.step()) {
    }
    return std::string(rewriting.take({}, true));
}

Rewritten moved(std::vector<ClockPiece> pieces) {
    Rewritten how;
    how.pid = 7;
    how.new_pid = 4'194'305;
    how.clock = ShownClock(std::move(pieces));
    return how;
}

}  // namespace

TEST("a line gets the numbers of its new process and its time, and its arguments stay") {
    Rewriting rewriting(moved({{0, 1'500, 0, 0}}));
    const std::string hostile = R"(,"note":"\",\"pid\":7,\"tid\":7,\"ts\":1")";
    const std::string found = rewritten(rewriting, span("a", R"("ts":5.250,"dur":3.000)", hostile));
    CHECK_EQ(found,
             R"({"id":1,"name":"a","cat":"compute","pid":4194305,"tid":4194305,"ts":6.750,"dur":3.000,)"
             R"("ph":"X",)" +
                 std::string(host) + hostile + "}}\n");
}

TEST("what lies within another stays within it by a clock that drifts") {
    const ShownClock clock({{0, 0, 5e-5, 0}});
    std::int64_t last = 0;
    for (std::int64_t ns = 0; ns < 2'000'000; ns += 777) {
        CHECK(clock.of(ns) >= last);
        last = clock.of(ns);
    }
    CHECK(!clock.keeps_durations());
    Rewriting rewriting(moved({{0, 0, 5e-5, 0}}));
    const std::string found = rewritten(rewriting, span("inner", R"("ts":9000.000,"dur":1000.000)") +
                                                       span("outer", R"("ts":0.000,"dur":10000.000)"));
    CHECK(found.find(R"("ts":8999.550,"dur":999.950)") != found.npos);
    CHECK(found.find(R"("ts":0.000,"dur":9999.500)") != found.npos);
}

TEST("after a clock was set times move by their own piece, and no duration becomes nothing") {
    constexpr std::int64_t ms = 1'000'000;
    const ShownClock ahead({{0, 0, 0, 0}, {3'000 * ms, -5'000 * ms, 0, 0}});
    CHECK_EQ(ahead.of(900 * ms), 900 * ms);
    CHECK_EQ(ahead.of(6'000 * ms), 1'000 * ms);
    CHECK_EQ(ahead.end_of(6'000 * ms, 7), 1'000 * ms + 7);
    CHECK_EQ(ahead.end_of(900 * ms, 5'100 * ms), 1'000 * ms);  // it took 100 ms
    CHECK_EQ(ahead.end_of(2'900 * ms, 200 * ms), 3'100 * ms);  // the pieces leave nothing of it
    const ShownClock back({{0, 0, 0, 0}, {1'000 * ms, 50 * ms, 0, 0}});
    CHECK_EQ(back.end_of(990 * ms, 20 * ms), 1'010 * ms);  // and say more than the file
}

TEST("a block whose lines stay as they are is given again as it lies") {
    Rewritten how;
    how.pid = how.new_pid = 7;
    how.packed = true;
    Rewriting rewriting(std::move(how));
    const std::string text = span("a", R"("ts":5.250,"dur":3.000)");
    PlainText& into = rewriting.walk().next_text();
    std::memcpy(into.room_for(text.size()), text.data(), text.size());
    into.close(text.size());
    rewriting.walk().begin();
    while (rewriting.step()) {
    }
    CHECK_EQ(std::string(rewriting.take("as it lies", false)), std::string("as it lies"));
}
