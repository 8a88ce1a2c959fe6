// Where the kernel does not map pages for writing in one call, units are ready and written all the same.
#include "older_kernel.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dftrace/spool/spool.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

std::string in_memory(const char* name) {
    return "/dev/shm/dftrace-test-" + std::to_string(getpid()) + "-older-" + name + ".spool";
}

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

constexpr std::uint32_t ready = 8;

// Who maps a page changes nothing on it, which ThreadSanitizer takes for a race with what is stored there.
void skip_where_that_is_a_race() {
#ifdef __SANITIZE_THREAD__
    SKIP("an atomic operation that changes nothing meets stores that are none");
#endif
}

}  // namespace

TEST("units that are made ready are mapped page by page, empty, and handed out as any others") {
    Spool spool(in_memory("ready"), 100 * unit_bytes);
    const OlderKernel kernel;
    char* const base = reinterpret_cast<char*>(spool.acquire(UnitKind::ring, 1)) - unit_bytes;
    CHECK_EQ(kernel.refused(), 1);
    spool.prepare(ready);
    CHECK_EQ(kernel.refused(), 1 + ready);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    CHECK_EQ(mapped_pages(base + 2 * unit_bytes, ready * unit_bytes), ready * unit_bytes / page);
    for (std::uint32_t index = 2; index < 2 + 2 * ready; ++index) {
        UnitHeader* unit = spool.acquire(UnitKind::ring, 7);
        REQUIRE(unit != nullptr);
        CHECK_EQ(spool.index_of(unit), index);
        const char* bytes = blobs_of(unit);
        CHECK(std::all_of(bytes, bytes + unit_bytes - sizeof(UnitHeader), [](char c) { return c == 0; }));
        std::memset(records_of(unit), 0x33, unit->capacity * sizeof(Record));
    }
    spool.unlink();
}

TEST("who takes a unit while its pages are mapped loses nothing of what is stored there") {
    skip_where_that_is_a_race();
    Spool spool(in_memory("race"), 100'000 * unit_bytes);
    const OlderKernel kernel;
    std::atomic<bool> running{true};
    std::thread preparing([&] {
        while (running) spool.prepare(ready);
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
