// Room that is ready before anybody needs it: as good as any, within the limit, and given back; also where
// the file system is full, and where the kernel does not map pages for writing in one call.
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "dftrace/spool/spool.hpp"
#include "older_kernel.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

struct stat look(const std::string& path) {
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    return info;
}

std::uint64_t taken_bytes(const std::string& path) {
    return static_cast<std::uint64_t>(look(path).st_blocks) * 512;
}

// In memory, where a part of a file can be let go of.
std::string in_memory(const char* name) {
    return "/dev/shm/dftrace-test-" + std::to_string(getpid()) + "-" + name + ".spool";
}

bool all_zero(UnitHeader* unit) {
    const char* bytes = blobs_of(unit);
    return std::all_of(bytes, bytes + unit_bytes - sizeof(UnitHeader), [](char c) { return c == 0; });
}

// A tmpfs of some units, for as long as the object lives.
class SmallDisk {
  public:
    SmallDisk(const ScratchDir& dir, std::size_t bytes) : path_(dir.file("disk")) {
        mkdir(path_.c_str(), 0700);
        const std::string size = "size=" + std::to_string(bytes);
        if (mount("none", path_.c_str(), "tmpfs", 0, size.c_str()) != 0)
            SKIP(std::string("a small file system cannot be mounted: ") + std::strerror(errno));
    }
    ~SmallDisk() { umount2(path_.c_str(), MNT_DETACH); }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    const std::string& path() const noexcept { return path_; }
    void fill() const {
        std::ofstream file(path_ + "/ballast", std::ios::binary);
        const std::string piece(4096, 'x');
        while (file.write(piece.data(), 4096) && file.flush()) {
        }
    }
    void clear() const { unlink((path_ + "/ballast").c_str()); }

  private:
    std::string path_;
};

// How many pages from there on this process can write to without asking the kernel.
std::size_t mapped_pages(const void* from, std::size_t bytes) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    std::vector<std::uint64_t> entries(bytes / page);
    const int file = open("/proc/self/pagemap", O_RDONLY);
    REQUIRE(file >= 0);
    const auto at = static_cast<off_t>(reinterpret_cast<std::uintptr_t>(from) / page * sizeof entries[0]);
    const ssize_t got = pread(file, entries.data(), entries.size() * sizeof entries[0], at);
    close(file);
    REQUIRE_EQ(got, entries.size() * sizeof entries[0]);
    return static_cast<std::size_t>(
        std::count_if(entries.begin(), entries.end(), [](std::uint64_t entry) { return entry >> 63; }));
}

}  // namespace

TEST("units that are prepared take room, are not in use, and are handed out as any others") {
    Spool spool(in_memory("taken"), 100 * unit_bytes);
    UnitHeader* first = spool.acquire(UnitKind::ring, 1);
    spool.prepare(8);
    CHECK_EQ(spool.header().units.load(), 2);
    CHECK_EQ(spool.used_bytes(), 2 * unit_bytes);
    CHECK_EQ(taken_bytes(spool.path()), 10 * unit_bytes);
    spool.prepare(8);
    CHECK_EQ(taken_bytes(spool.path()), 10 * unit_bytes);
    for (std::uint32_t index = 2; index < 14; ++index) {
        UnitHeader* unit = spool.acquire(UnitKind::ring, 7);
        REQUIRE(unit != nullptr);
        CHECK_EQ(spool.index_of(unit), index);
        CHECK(unit->kind == UnitKind::ring && unit->units == 1 && unit->owner == 7);
        CHECK(all_zero(unit));
        std::memset(records_of(unit), 0x33, unit->capacity * sizeof(Record));
    }
    CHECK(first->magic == unit_magic);
    CHECK_EQ(taken_bytes(spool.path()), 14 * unit_bytes);
    spool.unlink();
}

TEST("what was released counts as ready, and goes first") {
    Spool spool(in_memory("released"), 100 * unit_bytes);
    std::vector<UnitHeader*> units;
    for (int i = 0; i < 6; ++i) units.push_back(spool.acquire(UnitKind::ring, 1));
    for (UnitHeader* unit : units) spool.release(unit);
    spool.prepare(6);
    CHECK_EQ(taken_bytes(spool.path()), 7 * unit_bytes);
    spool.prepare(8);
    CHECK_EQ(taken_bytes(spool.path()), 9 * unit_bytes);
    CHECK(spool.acquire(UnitKind::ring, 1) == units.back());
    spool.unlink();
}

TEST("room that nobody has taken is given back, and that which is in use stays as it is") {
    Spool spool(in_memory("back"), 100 * unit_bytes);
    for (int round = 0; round < 5; ++round) {
        UnitHeader* unit = spool.acquire(UnitKind::ring, 1);
        std::memset(records_of(unit), 0x44, unit->capacity * sizeof(Record));
        spool.prepare(16);
        CHECK_EQ(taken_bytes(spool.path()), spool.used_bytes() + 16 * unit_bytes);
        UnitHeader* of_these = spool.acquire(UnitKind::ring, 1);
        std::memset(records_of(of_these), 0x55, of_these->capacity * sizeof(Record));
        spool.give_back_prepared();
        CHECK_EQ(taken_bytes(spool.path()), spool.used_bytes());
        for (const auto& [held, byte] : {std::pair{unit, 0x44}, {of_these, 0x55}}) {
            const char* bytes = reinterpret_cast<char*>(records_of(held));
            CHECK(std::all_of(bytes, bytes + held->capacity * sizeof(Record),
                              [=](char c) { return c == byte; }));
        }
    }
    UnitHeader* next = spool.acquire(UnitKind::ring, 1);
    CHECK(next && all_zero(next));
    spool.unlink();
}

TEST("the limit holds for what is prepared, too, and arguments of many units find their place behind it") {
    Spool spool(in_memory("limit"), 10 * unit_bytes);
    spool.prepare(1000);
    CHECK_EQ(look(spool.path()).st_size, 10 * unit_bytes);
    UnitHeader* run = spool.acquire(UnitKind::arguments, 0, 7);
    REQUIRE(run != nullptr);
    std::memset(blobs_of(run), 0x55, run->capacity);
    CHECK(spool.acquire(UnitKind::arguments, 0, 3) == nullptr);
    CHECK(spool.acquire(UnitKind::ring, 1) && spool.acquire(UnitKind::ring, 1));
    CHECK(spool.acquire(UnitKind::ring, 1) == nullptr);
    spool.prepare(1000);
    spool.give_back_prepared();
    CHECK_EQ(taken_bytes(spool.path()), 10 * unit_bytes);
    spool.unlink();
}

TEST("a run of units of which only the first are prepared is whole") {
    Spool spool(in_memory("run"), 100 * unit_bytes);
    spool.prepare(3);
    UnitHeader* run = spool.acquire(UnitKind::arguments, 0, 9);
    REQUIRE(run != nullptr);
    std::memset(blobs_of(run), 0x66, run->capacity);
    spool.prepare(2);
    spool.give_back_prepared();
    CHECK_EQ(taken_bytes(spool.path()), 10 * unit_bytes);
    const char* bytes = blobs_of(run);
    CHECK(std::all_of(bytes, bytes + run->capacity, [](char c) { return c == 0x66; }));
    spool.unlink();
}

TEST("a limit on the size of files ends neither the program nor what fits") {
    CHECK(in_child([] {
        Spool spool(in_memory("size"), 100 * unit_bytes);
        const struct rlimit few { 6 * unit_bytes, RLIM_INFINITY };
        REQUIRE(setrlimit(RLIMIT_FSIZE, &few) == 0);
        spool.prepare(50);
        CHECK_EQ(spool.refused(), 0);
        CHECK_EQ(look(spool.path()).st_size, 6 * unit_bytes);
        sigset_t pending;
        sigpending(&pending);
        CHECK(!sigismember(&pending, SIGXFSZ));
        int units = 0;
        while (UnitHeader* unit = spool.acquire(UnitKind::ring, 1)) {
            std::memset(records_of(unit), 0x77, unit->capacity * sizeof(Record));
            ++units;
        }
        CHECK_EQ(units, 5);
        CHECK_EQ(spool.refused(), EFBIG);
        spool.unlink();
    }));
}

TEST("where the program has closed the spool's file, nobody else's gets longer") {
    const ScratchDir dir;
    Spool spool(in_memory("closed"), 100 * unit_bytes);
    const int number = spool.descriptor();
    const std::string path = dir.file("mine");
    const int mine = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    REQUIRE(mine >= 0 && dup2(mine, number) == number);
    spool.prepare(20);
    CHECK_EQ(look(path).st_size, 0);
    CHECK_EQ(look(spool.path()).st_size, unit_bytes);
    UnitHeader* unit = spool.acquire(UnitKind::ring, 1);  // which opens it again
    REQUIRE(unit != nullptr);
    spool.prepare(20);
    CHECK_EQ(look(spool.path()).st_size, 22 * unit_bytes);
    CHECK_EQ(look(path).st_size, 0);
    close(mine);
    close(number);
    spool.unlink();
}

TEST("threads that take units while room is prepared and given back lose nothing that they store") {
    for (const std::size_t limit : {40, 4000}) {
        Spool spool(in_memory("race"), limit * unit_bytes);
        std::atomic<int> running{4};
        std::vector<std::thread> threads;
        for (std::uint32_t number = 1; number <= 4; ++number)
            threads.emplace_back([&, number] {
                std::vector<UnitHeader*> mine;
                for (std::uint64_t i = 0; i < scaled(2'000); ++i) {
                    UnitHeader* unit = spool.acquire(UnitKind::ring, number);
                    if (unit) {
                        std::memset(records_of(unit), static_cast<int>(number),
                                    unit->capacity * sizeof(Record));
                        mine.push_back(unit);
                    }
                    if (unit && mine.size() < 500) continue;
                    // Half of them, so that the spool grows on.
                    for (std::size_t left = mine.size() / 2; left > 0; --left) {
                        UnitHeader* last = mine.back();
                        const auto* bytes = reinterpret_cast<unsigned char*>(records_of(last));
                        CHECK(std::all_of(bytes, bytes + last->capacity * sizeof(Record),
                                          [=](unsigned char byte) { return byte == number; }));
                        spool.release(last);
                        mine.pop_back();
                    }
                }
                --running;
            });
        std::thread preparing([&] {
            while (running) {
                spool.prepare(8);
                spool.give_back_prepared();
            }
        });
        for (auto& thread : threads) thread.join();
        preparing.join();
        spool.prepare(8);
        CHECK(look(spool.path()).st_size <= static_cast<off_t>(limit * unit_bytes));
        spool.unlink();
    }
}

TEST(
    "room that is prepared on a full file system is no refusal, holds what is stored, and leaves others "
    "theirs") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 20 * unit_bytes);
    Spool spool(disk.path() + "/a.spool", 1000 * unit_bytes);
    spool.prepare(500);
    CHECK_EQ(spool.refused(), 0);
    spool.give_back_prepared();
    disk.fill();
    struct stat ballast {};
    REQUIRE(stat((disk.path() + "/ballast").c_str(), &ballast) == 0);
    CHECK_EQ(ballast.st_size, 19 * unit_bytes);
    disk.clear();
    spool.prepare(10);
    disk.fill();
    int units = 0;
    while (UnitHeader* unit = spool.acquire(UnitKind::ring, 1)) {
        std::memset(records_of(unit), 0x77, unit->capacity * sizeof(Record));
        ++units;
    }
    CHECK_EQ(units, 10);
    CHECK_EQ(spool.refused(), ENOSPC);
}

TEST("a spool that does not fit at all is refused and leaves no file") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 4 * unit_bytes);
    disk.fill();
    CHECK_THROWS(std::system_error, Spool(disk.path() + "/a.spool", 1000 * unit_bytes));
    CHECK(access((disk.path() + "/a.spool").c_str(), F_OK) != 0);
}

TEST("units that are made ready are mapped page by page, empty, and handed out as any others") {
    Spool spool(in_memory("older"), 100 * unit_bytes);
    const OlderKernel kernel;
    char* const base = reinterpret_cast<char*>(spool.acquire(UnitKind::ring, 1)) - unit_bytes;
    CHECK_EQ(kernel.refused(), 1);
    spool.prepare(8);
    CHECK_EQ(kernel.refused(), 1 + 8);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    CHECK_EQ(mapped_pages(base + 2 * unit_bytes, 8 * unit_bytes), 8 * unit_bytes / page);
    for (std::uint32_t index = 2; index < 2 + 2 * 8; ++index) {
        UnitHeader* unit = spool.acquire(UnitKind::ring, 7);
        REQUIRE(unit != nullptr);
        CHECK_EQ(spool.index_of(unit), index);
        CHECK(all_zero(unit));
        std::memset(records_of(unit), 0x33, unit->capacity * sizeof(Record));
    }
    spool.unlink();
}

TEST("who takes a unit while its pages are mapped loses nothing of what is stored there") {
#ifdef __SANITIZE_THREAD__
    SKIP("an atomic operation that changes nothing meets stores that are none");
#endif
    Spool spool(in_memory("race"), 100'000 * unit_bytes);
    const OlderKernel kernel;
    std::atomic<bool> running{true};
    std::thread preparing([&] {
        while (running) spool.prepare(8);
    });
    std::vector<UnitHeader*> taken;
    const auto number = [](const UnitHeader* unit) { return unit->sequence * 0x9E3779B97F4A7C15u; };
    for (std::uint64_t i = 0; i < scaled(2'000); ++i) {
        UnitHeader* unit = spool.acquire(UnitKind::ring, 1);
        CHECK(unit != nullptr);
        if (!unit) break;
        auto* words = reinterpret_cast<std::uint64_t*>(blobs_of(unit));
        std::fill(words, words + (unit_bytes - sizeof(UnitHeader)) / sizeof *words, number(unit));
        taken.push_back(unit);
        if (taken.size() < 64) continue;
        for (UnitHeader* full : taken) {
            const auto* stored = reinterpret_cast<const std::uint64_t*>(blobs_of(full));
            CHECK(std::all_of(stored, stored + (unit_bytes - sizeof(UnitHeader)) / sizeof *stored,
                              [&](std::uint64_t word) { return word == number(full); }));
        }
        // Half of them come back, so that the spool grows on.
        for (std::size_t left = taken.size() / 2; left > 0; --left, taken.pop_back())
            spool.release(taken.back());
        taken.clear();
    }
    running = false;
    preparing.join();
    CHECK(kernel.refused() > 0);
    spool.unlink();
}
