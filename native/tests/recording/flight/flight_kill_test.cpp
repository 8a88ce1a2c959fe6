// A flight recorder that is killed: whoever adopts its spool writes the last events that it held.
#include <sys/wait.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

constexpr std::size_t threads = 3;

struct Seen {
    std::map<std::string, std::vector<bool>> numbers;  // of each thread's spans
    std::uint64_t twice = 0;
    std::uint64_t wrong_batch = 0;
    std::uint64_t first_ns = UINT64_MAX, last_ns = 0;  // ends of spans

    explicit Seen(const Trace& trace) {
        trace.each([&](const TraceEvent& e) {
            if (e.ph != "X" || e.name == "outer") return;
            auto& of_thread = numbers[std::string(e.name)];
            const std::uint64_t n = e.number("count");
            if (n >= of_thread.size()) of_thread.resize(n + 1);
            twice += of_thread[n];
            of_thread[n] = true;
            if (!e.arg("batch").empty()) wrong_batch += e.number("batch") != n / 64;
            first_ns = std::min(first_ns, e.ts + e.dur);
            last_ns = std::max(last_ns, e.ts + e.dur);
        });
    }
    // How many of the thread's last spans are there, the one of this number the last.
    std::uint64_t run_up_to(std::size_t thread, std::uint64_t number) const {
        const auto& of_thread = numbers.at(std::to_string(thread));
        std::uint64_t run = 0;
        while (run < number && number - run < of_thread.size() && of_thread[number - run]) ++run;
        return run;
    }
};

}  // namespace

TEST(
    "killed, also while dumps are written: the last events, or those of the last seconds, are there, and "
    "once") {
    struct Case {
        std::uint64_t window_ns;
        int dumps;
        std::size_t units;  // 0 for any
        std::uint64_t records;
    };
    std::mt19937 random(61);
    for (const Case& c :
         {Case{0, 0, 0, 150'000}, {3'000'000, 0, 4000, 150'000}, {0, 1'000'000, 200, 300'000}})
        for (int i = 0; i < static_cast<int>(scaled(12)) + 3; ++i) {
            const ScratchDir dir;
            const Confirmed confirmed(dir.file("confirmed"));
            const std::size_t units = c.units ? c.units : 20 + random() % 100;
            const pid_t victim =
                start_victim({"flight", dir.path(), confirmed.path(), std::to_string(threads),
                              std::to_string(c.window_ns), std::to_string(c.dumps), std::to_string(units)});
            kill_after(victim, confirmed, threads, 1000 + random() % scaled(c.records), random);
            const Trace trace = adopted(dir.only(".spool"));
            const Footer footer = check_complete(trace, "died");
            const Seen seen(trace);
            CHECK_EQ(seen.twice, 0);
            CHECK_EQ(seen.wrong_batch, 0);
            if (c.window_ns) CHECK(seen.last_ns - seen.first_ns <= c.window_ns + 1000);
            std::uint64_t all = 0;
            for (std::size_t t = 0; t < threads; ++t) {
                // It may have died between storing a record and saying so.
                const std::uint64_t last = confirmed.of(t);
                const auto of_thread = seen.numbers.find(std::to_string(t));
                if (c.dumps && last) CHECK(seen.run_up_to(t, last) > 0);
                if (c.dumps || of_thread == seen.numbers.end()) continue;  // that of others is newer
                const auto there = static_cast<std::uint64_t>(
                    std::count(of_thread->second.begin(), of_thread->second.end(), true));
                CHECK(there == seen.run_up_to(t, last) || there == seen.run_up_to(t, last + 1));
                all += there;
            }
            if (c.units) continue;
            CHECK_EQ(footer.number("dropped"), 0);
            CHECK(all >= std::min<std::uint64_t>(confirmed.sum(threads), (units - 15) * 500));
        }
}

TEST("a flight recorder that dies at any of its writes is completed exactly once") {
    for (const std::string moment : {"before:", "inside:", "after:", "create:", "created:"})
        for (int write = 1;; ++write) {
            const ScratchDir dir;
            const int status =
                run_victim({"dumps", dir.path(), "gzip"}, {moment + std::to_string(write), ""});
            if (!was_killed(status)) {
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                CHECK(write > (moment[0] == 'c' ? 1 : 7));
                break;
            }
            const Trace trace = adopted(dir.only(".spool"));
            const bool whole = trace.text.find("\"ended\":\"exception\"") != std::string::npos;
            const std::uint64_t spans = check_complete(trace, whole ? "exception" : "died").number("spans");
            const Seen seen(trace);
            CHECK_EQ(seen.twice, 0);
            // All that it had recorded by then.
            CHECK(spans % 100 == 0 && spans > 0);
            CHECK_EQ(seen.numbers.at("span").size(), spans);
            CHECK_EQ(dir.files(".pfw.gz").size(), 1);
        }
}

TEST("a flight recorder on a full disk is completed by whoever adopts it") {
    for (const int limit : {1, 700, 2000, 4000, 6000}) {
        const ScratchDir dir;
        const int status = run_victim({"dumps", dir.path(), "none"}, {"", std::to_string(limit)});
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        const Trace trace = adopted(dir.only(".spool"));
        check_complete(trace, "exception");
        CHECK(trace.text.find(R"("write_error":"No space left on device")") != std::string::npos);
        CHECK_EQ(Seen(trace).twice, 0);
        CHECK_EQ(trace.count("X"), 400);
    }
}
