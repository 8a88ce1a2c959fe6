// How many units are ready goes by how fast they are taken.
#include "dftrace/recording/record_flow.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "check.hpp"
#include "scratch.hpp"

using namespace dftrace;
using namespace std::chrono_literals;

namespace {

struct Growing {
    ~Growing() { spool.unlink(); }
    void take(int units) {
        for (int i = 0; i < units; ++i) REQUIRE(spool.acquire(UnitKind::ring, 1));
    }
    // So much later the drain thread looks; how many units are ready then.
    std::uint64_t look_after(UnitsAhead::Clock::duration later) {
        now += later;
        ahead.keep_up(now);
        return ready();
    }
    std::uint64_t ready() {
        struct stat info {};
        REQUIRE(stat(spool.path().c_str(), &info) == 0);
        return (static_cast<std::uint64_t>(info.st_blocks) * 512 - spool.used_bytes()) / unit_bytes;
    }

    Spool spool{"/dev/shm/dftrace-test-" + std::to_string(getpid()) + "-ahead.spool", 1000 * unit_bytes};
    UnitsAhead::Clock::time_point now = UnitsAhead::Clock::now();
    UnitsAhead ahead{spool, now};
};

}  // namespace

TEST("ready are as many as are taken in some milliseconds, up to a bound, until half of the spool is used") {
    Growing at;
    at.take(3);
    CHECK_EQ(at.look_after(1us), 0);  // what every run begins with
    at.take(1);
    CHECK_EQ(at.look_after(1ms - 1us), 8);
    at.take(12);
    CHECK_EQ(at.look_after(3ms), 32);
    at.take(10);
    CHECK_EQ(at.look_after(0us), UnitsAhead::most);
    while (at.spool.header().units.load() < 498) at.take(2), at.look_after(50us);
    CHECK_EQ(at.ready(), UnitsAhead::most);
    at.take(100);
    CHECK_EQ(at.look_after(5ms), UnitsAhead::most - 100);
    at.take(401);
    CHECK_EQ(at.look_after(20ms), 0);
}

TEST("for a thread that is slow nothing is ready") {
    Growing at;
    at.take(3);
    CHECK_EQ(at.look_after(1us), 0);
    for (int i = 0; i < 10; ++i) {
        at.take(1);
        CHECK_EQ(at.look_after(UnitsAhead::reach + 1us), 0);
        CHECK(at.ahead.look_again() == UnitsAhead::Clock::time_point::max());
    }
}

TEST("a thread that rests gets no more units, and what was ready is given back at the time that is told") {
    Growing at;
    at.take(3);
    for (int burst = 0; burst < 3; ++burst) {
        at.take(1);
        CHECK_EQ(at.look_after(1s), 0);  // the first after a rest
        at.take(2);
        const std::uint64_t ready = at.look_after(100us);
        CHECK(ready > 0);
        const auto until = at.ahead.look_again();
        CHECK(until == at.now + UnitsAhead::rest);
        CHECK_EQ(at.look_after(UnitsAhead::rest - 1us), ready);
        CHECK(at.ahead.look_again() == until);
        CHECK_EQ(at.look_after(1us), 0);
        CHECK(at.ahead.look_again() == UnitsAhead::Clock::time_point::max());
    }
}

TEST("a thread that was held up finds as many units ready as before") {
    Growing at;
    at.take(8);
    CHECK_EQ(at.look_after(100us), UnitsAhead::most);
    for (int i = 0; i < 10; ++i) {
        at.take(1);
        CHECK_EQ(at.look_after(UnitsAhead::reach + 2ms), UnitsAhead::most);
        at.take(1);
        CHECK_EQ(at.look_after(50us), UnitsAhead::most);
    }
}
