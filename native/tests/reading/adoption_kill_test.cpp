// Processes killed at random, while they record and while their drain threads write.

#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

struct Scene {
    std::size_t threads;
    std::string compression;
    std::uint64_t kill_after;  // records
};

Scene random_scene(std::mt19937& random) {
    static const std::string compressions[] = {"gzip", "none", "zstd"};
    const double most = std::log(static_cast<double>(scaled(60'000)));
    const double share = static_cast<double>(random() % 1000) / 1000;
    return {1 + random() % 4, compressions[random() % 3], static_cast<std::uint64_t>(std::exp(share * most))};
}

void check_dead(const Trace& trace, const Confirmed& confirmed, const Scene& scene) {
    const Footer footer = check_complete(trace, "died");
    const bool all_arguments = footer.number("args_sanitised") == 0;
    std::map<std::string, std::vector<bool>> seen;
    std::uint64_t twice = 0, wrong_batch = 0;
    trace.each([&](const TraceEvent& e) {
        if (e.ph == "B") {
            CHECK_EQ(e.arg("unfinished"), "true");
            CHECK(e.name == "outer" ? e.number("level") == 1 : e.number("level") == 2);
        }
        if (e.ph != "X" || e.name == "outer") return;
        auto& numbers = seen[std::string(e.name)];
        const std::uint64_t n = e.number("count");
        if (n >= numbers.size()) numbers.resize(n + 1);
        twice += numbers[n];
        numbers[n] = true;
        if (all_arguments) wrong_batch += e.number("batch") != n / 64;
    });
    CHECK_EQ(twice, 0);
    CHECK_EQ(wrong_batch, 0);
    for (std::size_t t = 0; t < scene.threads; ++t) {
        const auto& numbers = seen[std::to_string(t)];
        const auto found = static_cast<std::uint64_t>(std::accumulate(numbers.begin(), numbers.end(), 0));
        // It may have died between storing a record and saying so.
        CHECK(found >= confirmed.of(t) && found <= confirmed.of(t) + 1);
        CHECK(numbers.size() <= found + 1);
    }
    // The span that each thread was in from its first record on.
    CHECK(footer.number("unfinished") <= 2 * scene.threads);
}

void kill_and_adopt(std::mt19937& random, std::size_t block_bytes, int interval_ms, std::size_t units) {
    const ScratchDir dir;
    const Confirmed confirmed(dir.file("confirmed"));
    const Scene scene = random_scene(random);
    const pid_t victim = start_victim({"record", dir.path(), confirmed.path(), std::to_string(scene.threads),
                                       std::to_string(block_bytes), std::to_string(interval_ms),
                                       scene.compression, std::to_string(units)});
    kill_after(victim, confirmed, scene.threads, scene.kill_after, random);
    const Trace trace = adopted(dir.only(".spool"));
    check_dead(trace, confirmed, scene);
    std::size_t traces = 0;
    for (const std::string& path : dir.files()) traces += path.find(".pfw") != std::string::npos;
    CHECK_EQ(traces, 1);
}

int rounds() { return static_cast<int>(scaled(30)) + 10; }

}  // namespace

TEST("killed while the drain thread writes small blocks without a pause") {
    std::mt19937 random(21);
    for (int i = 0; i < rounds(); ++i) kill_and_adopt(random, 300 + random() % 8000, 1, 400);
}

TEST("killed with everything still in the spool") {
    std::mt19937 random(22);
    for (int i = 0; i < rounds(); ++i) kill_and_adopt(random, 1 << 20, 100'000, 4000);
}

TEST("killed while threads wait for room and units are used again") {
    std::mt19937 random(23);
    for (int i = 0; i < rounds(); ++i) kill_and_adopt(random, 4000, 2, 14);
}
