// Dumps while threads record at full speed, come and go: no event twice, and none missing unnoticed.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

TraceSettings recorder(const ScratchDir& dir, std::size_t units) {
    TraceSettings settings = dir.settings();
    settings.flight_recorder = true;
    settings.spool_bytes = units * unit_bytes;
    return settings;
}

// What a thread has stored: the tick at which each of its spans ended, 0 for one that was dropped.
struct Stored {
    std::vector<std::uint64_t> ends;
    std::uint64_t count = 0;

    void record(EventName& name) {
        SpanScope span(name);
        const bool kept = span.close({0, ends.size(), RecordFlag::has_count});
        ends.push_back(kept ? recording_thread()->last_tick : 0);
        count += kept;
    }
};

using Seen = std::map<std::string, std::vector<bool>>;

// Which span of which thread is in the trace; checks that none is there twice.
Seen seen_in(const Trace& trace) {
    Seen seen;
    std::uint64_t twice = 0;
    trace.each([&](const TraceEvent& e) {
        if (e.ph != "X") return;
        auto& numbers = seen[std::string(e.name)];
        const std::uint64_t n = e.number("count");
        if (n >= numbers.size()) numbers.resize(n + 1);
        twice += numbers[n];
        numbers[n] = true;
    });
    CHECK_EQ(twice, 0);
    return seen;
}

bool has(const Seen& seen, const std::string& thread, std::size_t n) {
    const auto it = seen.find(thread);
    return it != seen.end() && n < it->second.size() && it->second[n];
}

// Every span that ended at `tick` or later is there, and was recorded.
void check_from(std::uint64_t tick, const Seen& seen, const std::vector<Stored>& threads) {
    std::uint64_t missing = 0, made_up = 0;
    for (std::size_t t = 0; t < threads.size(); ++t)
        for (std::size_t n = 0; n < threads[t].ends.size(); ++n) {
            const std::uint64_t end = threads[t].ends[n];
            missing += end >= tick && end && !has(seen, std::to_string(t), n);
            made_up += !end && has(seen, std::to_string(t), n);
        }
    CHECK_EQ(missing, 0);
    CHECK_EQ(made_up, 0);
}

}  // namespace

TEST("dumps while four threads record at full speed hold every event once") {
    for (const std::size_t units : {40u, 400u}) {
        const ScratchDir dir;
        start_run(recorder(dir, units));
        constexpr std::size_t threads = 4;
        const std::uint64_t spans = scaled(150'000);
        std::vector<Stored> stored(threads);
        std::vector<std::thread> running;
        std::atomic<std::size_t> over{0};
        REQUIRE(recording_thread() != nullptr);  // from here on there is a session
        for (std::size_t t = 0; t < threads; ++t)
            running.emplace_back([&, t] {
                EventName name("flight", std::to_string(t));
                while (stored[t].ends.size() < spans) stored[t].record(name);
                ++over;
            });
        int dumps = 0;
        while (over.load() < threads) {
            CHECK_EQ(current_session()->dump("now"), 0);
            ++dumps;
        }
        for (auto& thread : running) thread.join();
        const std::uint64_t complete_from = current_session()->header().complete_from.load();
        const auto [outcome, trace, footer] = finished({"exception", "ValueError"});
        const Seen seen = seen_in(trace);
        check_from(complete_from, seen, stored);
        std::uint64_t all = 0;
        for (const Stored& thread : stored) all += thread.count;
        CHECK_EQ(footer.number("spans") + footer.told("overwritten"), all);
        CHECK_EQ(footer.number("dropped"), threads * spans - all);
        CHECK(footer.number("instants") >= static_cast<std::uint64_t>(dumps));
    }
}

TEST("threads come and go while units are used again: the last events are all there") {
    const ScratchDir dir;
    constexpr std::size_t units = 60;
    start_run(recorder(dir, units));
    REQUIRE(recording_thread() != nullptr);
    const std::size_t waves = scaled(20) + 2, wave = 10;
    std::vector<Stored> stored(waves * wave);
    for (std::size_t w = 0; w < waves; ++w) {
        std::vector<std::thread> guests;
        for (std::size_t g = 0; g < wave; ++g)
            guests.emplace_back([&stored, number = w * wave + g] {
                EventName name("flight", std::to_string(number));
                // From a few to some units' worth.
                for (std::size_t i = 0; i < 10 + number % 7 * 900; ++i) stored[number].record(name);
            });
        for (auto& guest : guests) guest.join();
        CHECK(current_session()->spool_bytes_used() <= units * unit_bytes);
        if (w % 5 == 4) CHECK_EQ(current_session()->dump("now"), 0);
    }
    const std::uint64_t complete_from = current_session()->header().complete_from.load();
    const auto [outcome, trace, footer] = finished({"exception", "ValueError"});
    check_from(complete_from, seen_in(trace), stored);
    std::uint64_t all = 0;
    for (const Stored& thread : stored) all += thread.count;
    CHECK_EQ(footer.number("spans") + footer.told("overwritten"), all);
    CHECK(footer.number("spans") < all || waves < 10);
}

TEST("threads that ended long ago leave their units to those that record") {
    const ScratchDir dir;
    start_run(recorder(dir, 30));
    EventName name("flight", "0");
    std::vector<Stored> stored(1);
    for (int i = 0; i < 300; ++i) {
        std::thread([i] {
            EventName guest("flight", "guest");
            SpanScope(guest).close({0, static_cast<std::uint64_t>(i), RecordFlag::has_count});
        }).join();
        for (int n = 0; n < 300; ++n) stored[0].record(name);
    }
    CHECK_EQ(stored[0].count, 90'000);
    CHECK_EQ(current_session()->dump("now"), 0);
    const auto [outcome, trace, footer] = finished();
    CHECK_EQ(footer.number("dropped"), 0);
    CHECK_EQ(trace.of("i").size(), 1);
    const std::vector<bool> seen = seen_in(trace).at("0");
    REQUIRE_EQ(seen.size(), 90'000);
    CHECK(std::all_of(seen.end() - 3000, seen.end(), [](bool there) { return there; }));
}

TEST("dumps that several threads ask for at once all hold what was recorded before") {
    const ScratchDir dir;
    start_run(recorder(dir, 200));
    constexpr std::size_t threads = 4;
    const std::size_t rounds = scaled(40) + 2;
    std::vector<Stored> stored(threads);
    std::vector<std::thread> running;
    for (std::size_t t = 0; t < threads; ++t)
        running.emplace_back([&, t] {
            EventName name("flight", std::to_string(t));
            for (std::size_t r = 0; r < rounds; ++r) {
                for (int i = 0; i < 50; ++i) stored[t].record(name);
                CHECK_EQ(current_session()->dump("mine"), 0);
            }
        });
    for (auto& thread : running) thread.join();
    const auto [outcome, trace, footer] = finished();
    CHECK_EQ(footer.number("spans"), threads * rounds * 50);
    check_from(0, seen_in(trace), stored);
}
