// A spool grows to its limit, in runs of any length, whatever signals arrive, and no further.
#include <signal.h>
#include <sys/time.h>

#include <cstring>
#include <vector>

#include "check.hpp"
#include "dftrace/spool/spool.hpp"
#include "scratch.hpp"

using namespace dftrace;

TEST("the limit counts the header, and a refusal leaves everything as it is") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 10 * unit_bytes);
    std::vector<UnitHeader*> units;
    while (UnitHeader* unit = spool.acquire(UnitKind::ring, 1)) units.push_back(unit);
    CHECK_EQ(units.size(), 9);
    CHECK_EQ(spool.header().units.load(), 10);
    CHECK(spool.acquire(UnitKind::ring, 1) == nullptr);
    CHECK(spool.acquire(UnitKind::arguments, 1, 3) == nullptr);
    CHECK_EQ(spool.header().units.load(), 10);
    spool.release(units[4]);
    CHECK(spool.acquire(UnitKind::thread, 2) == units[4]);
    CHECK(spool.acquire(UnitKind::thread, 2) == nullptr);
}

TEST("a limit too small to record anything is raised to four units") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 1);
    int units = 0;
    while (spool.acquire(UnitKind::ring, 1)) ++units;
    CHECK_EQ(units, 3);
}

TEST("a long run is one piece of memory") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 64 * unit_bytes);
    UnitHeader* before = spool.acquire(UnitKind::ring, 1);
    UnitHeader* run = spool.acquire(UnitKind::arguments, 0, 17);
    UnitHeader* after = spool.acquire(UnitKind::ring, 1);
    REQUIRE(before && run && after);
    CHECK_EQ(run->units, 17);
    CHECK_EQ(run->capacity, 17 * unit_bytes - sizeof(UnitHeader));
    std::memset(blobs_of(run), 0x55, run->capacity);
    CHECK_EQ(before->magic, unit_magic);
    CHECK_EQ(after->magic, unit_magic);
    CHECK_EQ(spool.index_of(after), spool.index_of(run) + 17);
    CHECK(spool.acquire(UnitKind::arguments, 0, 100) == nullptr);
}

TEST("the units of a long run come back one by one") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 8 * unit_bytes);
    UnitHeader* run = spool.acquire(UnitKind::arguments, 0, 7);
    REQUIRE(run != nullptr);
    std::memset(blobs_of(run), 0x55, run->capacity);
    spool.release(run);
    for (std::uint32_t i = 1; i < 8; ++i) {
        CHECK_EQ(spool.unit(i)->magic, unit_magic);
        CHECK(spool.unit(i)->kind == UnitKind::free);
        CHECK_EQ(spool.unit(i)->units, 1);
    }
    for (int i = 0; i < 7; ++i) CHECK(spool.acquire(UnitKind::ring, 1) != nullptr);
    CHECK(spool.acquire(UnitKind::ring, 1) == nullptr);
}

TEST("long runs are found again among released units, so that large arguments never use a spool up") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 32 * unit_bytes);
    for (int i = 0; i < 1000; ++i) {
        UnitHeader* run = spool.acquire(UnitKind::arguments, 0, 5);
        UnitHeader* single = spool.acquire(UnitKind::ring, 1);
        REQUIRE(run && single);
        CHECK_EQ(run->units, 5);
        CHECK_EQ(run->capacity, 5 * unit_bytes - sizeof(UnitHeader));
        std::memset(blobs_of(run), 0x55, run->capacity);
        CHECK_EQ(single->magic, unit_magic);
        spool.release(i % 2 ? run : single);
        spool.release(i % 2 ? single : run);
    }
}

namespace {
volatile sig_atomic_t alarms = 0;
void on_alarm(int) { alarms = alarms + 1; }
}  // namespace

TEST("signals that interrupt the reservation of space are no refusal") {
    const ScratchDir dir;
    // Only a file system in memory looks for signals while it reserves.
    const std::string shm = "/dev/shm/dftrace-test-" + std::to_string(getpid()) + ".spool";
    struct sigaction action {
    }, before{};
    action.sa_handler = on_alarm;
    sigaction(SIGALRM, &action, &before);
    const itimerval often{{0, 20}, {0, 20}}, never{};
    {
        Spool spool(shm, 4096 * unit_bytes);
        spool.unlink();
        setitimer(ITIMER_REAL, &often, nullptr);
        int refused = 0;
        for (int i = 0; i < 500; ++i) refused += spool.acquire(UnitKind::ring, 1, 8) == nullptr;
        setitimer(ITIMER_REAL, &never, nullptr);
        CHECK_EQ(refused, 0);
        CHECK(alarms > 0);
    }
    sigaction(SIGALRM, &before, nullptr);
}
