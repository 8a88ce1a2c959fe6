// The spool hands out units of a file that only its owner can read.
#include "dftrace/spool/spool.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

constexpr std::size_t mib = 1 << 20;

off_t file_size(const std::string& path) {
    struct stat info {};
    return stat(path.c_str(), &info) == 0 ? info.st_size : -1;
}

volatile sig_atomic_t alarms = 0;
void on_alarm(int) { alarms = alarms + 1; }

}  // namespace

TEST("units come fresh, say what they are, and do not overlap") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), mib);
    std::uint64_t sequence = 0;
    std::set<std::uint32_t> indices;
    for (const auto kind : {UnitKind::thread, UnitKind::ring, UnitKind::names, UnitKind::arguments}) {
        UnitHeader* unit = spool.acquire(kind, 7);
        REQUIRE(unit != nullptr);
        CHECK_EQ(unit->magic, unit_magic);
        CHECK(unit->kind == kind);
        CHECK_EQ(unit->owner, 7);
        CHECK_EQ(unit->units, 1);
        CHECK(unit->sequence > sequence);
        sequence = unit->sequence;
        CHECK_EQ(unit->committed.load(), 0);
        CHECK_EQ(unit->consumed, 0);
        CHECK_EQ(unit->next.load(), 0);
        const bool holds_records = kind == UnitKind::thread || kind == UnitKind::ring;
        char* begin = holds_records ? reinterpret_cast<char*>(records_of(unit)) : blobs_of(unit);
        const std::size_t bytes = unit->capacity * (holds_records ? sizeof(Record) : 1);
        CHECK(begin + bytes <= reinterpret_cast<char*>(unit) + unit_bytes);
        CHECK(bytes > unit_bytes - thread_block_bytes - sizeof(Record) - sizeof(UnitHeader));
        std::memset(begin, 0xEE, bytes);
        CHECK_EQ(spool.index_of(unit), indices.size() + 1);
        CHECK(indices.insert(spool.index_of(unit)).second);
        CHECK(spool.unit(spool.index_of(unit)) == unit);
    }
    CHECK_EQ(spool.header().units.load(), 5);
    CHECK_EQ(spool.used_bytes(), 5 * unit_bytes);
    CHECK_EQ(file_size(spool.path()), 5 * unit_bytes);
}

TEST("a released unit is used again, as new") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), mib);
    UnitHeader* first = spool.acquire(UnitKind::ring, 1);
    const std::uint64_t sequence = first->sequence;
    first->committed.store(99);
    first->consumed = first->pending = 99;
    first->pending_write = 5;
    first->left = 1;
    first->next.store(3);
    spool.release(first);
    CHECK(first->kind == UnitKind::free);
    UnitHeader* again = spool.acquire(UnitKind::arguments, 2);
    CHECK(again == first);
    CHECK(again->sequence > sequence);
    CHECK_EQ(again->committed.load(), 0);
    CHECK_EQ(again->consumed + again->pending + again->left + again->next.load(), 0);
    CHECK_EQ(again->pending_write, 0);
    CHECK_EQ(spool.header().units.load(), 2);
}

TEST("a unit that held records shows no open spans when a thread gets it") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), mib);
    UnitHeader* ring = spool.acquire(UnitKind::ring, 1);
    std::memset(records_of(ring), 0xAB, ring->capacity * sizeof(Record));
    spool.release(ring);
    // From here on another process may look, or this one may be killed.
    const auto* block = reinterpret_cast<ThreadBlock*>(spool.acquire(UnitKind::thread, 2));
    REQUIRE(&block->unit == ring);
    CHECK_EQ(block->depth.load(), 0);
    CHECK_EQ(block->task_slots, 0);
    CHECK_EQ(block->ended.load(), 0);
    CHECK_EQ(block->name[0], 0);
    CHECK(std::none_of(std::begin(block->tasks), std::end(block->tasks),
                       [](const OpenSpan& span) { return span.live != 0; }));
}

TEST("threads that take and give back units at once never share one") {
    const ScratchDir dir;
    Spool spool(dir.file("a.spool"), 4 * mib);
    std::vector<std::thread> threads;
    for (std::uint32_t number = 1; number <= 8; ++number)
        threads.emplace_back([&spool, number] {
            std::vector<UnitHeader*> mine;
            for (int i = 0; i < 300; ++i) {
                if (UnitHeader* unit = spool.acquire(UnitKind::ring, number)) {
                    std::memset(records_of(unit), static_cast<int>(number), 4096);
                    mine.push_back(unit);
                }
                if (mine.size() < 5) continue;
                for (UnitHeader* unit : mine) {
                    const auto* bytes = reinterpret_cast<unsigned char*>(records_of(unit));
                    CHECK(unit->owner == number && bytes[0] == number && bytes[4095] == number);
                    spool.release(unit);
                }
                mine.clear();
            }
        });
    for (auto& thread : threads) thread.join();
    CHECK(spool.header().units.load() <= 41);
}

TEST("processes are told apart by pid, start time and boot") {
    const ProcessIdentity self = ProcessIdentity::self();
    CHECK(!self.gone() && !self.elsewhere());
    ProcessIdentity other = self;
    ++other.start;
    CHECK(other.gone());
    other = self;
    other.boot_id = "another boot";
    CHECK(other.gone());
    other = self;
    ++other.pid_namespace;
    CHECK(!other.gone() && other.elsewhere());  // its number says nothing here
    const pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    other = self;
    other.pid = static_cast<std::uint32_t>(child);
    other.start = 0;
    CHECK(!other.gone());
    kill(child, SIGKILL);
    siginfo_t info{};
    REQUIRE(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT) == 0);
    CHECK(other.gone());  // a zombie has ended
    wait_for(child);
    CHECK(other.gone());
}

TEST("a process that cannot be looked at may live") {
    const ProcessIdentity self = ProcessIdentity::self();
    ProcessIdentity nobody = self;
    nobody.pid = (1u << 22) + 1;
    struct rlimit before;
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const struct rlimit none { 0, before.rlim_max };
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    const bool gone = self.gone(), nobody_gone = nobody.gone();
    REQUIRE(setrlimit(RLIMIT_NOFILE, &before) == 0);
    CHECK(!gone);
    CHECK(nobody_gone);
}

TEST("a process whose first thread has ended still lives") {
    int to_parent[2], to_child[2];
    REQUIRE(pipe(to_parent) == 0 && pipe(to_child) == 0);
    const pid_t child = fork();
    if (child == 0) {
        std::thread([out = to_parent[1], in = to_child[0]] {
            char byte = 0;
            // The first thread is a zombie as soon as /proc says so.
            for (char state = 0; state != 'Z';) {
                std::ifstream stat("/proc/" + std::to_string(getpid()) + "/stat");
                std::string line;
                std::getline(stat, line);
                state = line[line.rfind(')') + 2];
            }
            _exit(write(out, "x", 1) == 1 && read(in, &byte, 1) == 1 ? 0 : 1);
        }).detach();
        pthread_exit(nullptr);
    }
    close(to_parent[1]);
    char byte = 0;
    CHECK(read(to_parent[0], &byte, 1) == 1);
    ProcessIdentity process = ProcessIdentity::self();
    process.pid = static_cast<std::uint32_t>(child);
    process.start = 0;
    CHECK(!process.gone());
    CHECK(write(to_child[1], "x", 1) == 1);
    const int status = wait_for(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (const int fd : {to_parent[0], to_child[0], to_child[1]}) close(fd);
}

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
