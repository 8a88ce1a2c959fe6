// Threads record at full speed, come and go, and every span is in the trace exactly once.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

struct Seen {
    std::uint64_t id = 0, parent = 0, start = 0, end = 0;
    std::uint16_t level = 0;
    int times = 0;
};

// Of a thread's spans, numbered 4k to 4k + 3: 4k holds 4k + 1 and 4k + 3, and 4k + 1 holds 4k + 2.
constexpr std::uint64_t inside[] = {0, 0, 1, 0};

void record_families(EventName& name, std::uint64_t families) {
    const auto number = [](std::uint64_t n) { return SpanEnd{0, n, RecordFlag::has_count}; };
    for (std::uint64_t n = 0; n < 4 * families; n += 4) {
        SpanScope outer(name);
        SpanScope first(name);
        SpanScope(name).close(number(n + 2));
        first.close(number(n + 1));
        SpanScope(name).close(number(n + 3));
        outer.close(number(n));
    }
}

void check_families(const std::vector<Seen>& spans) {
    std::vector<std::uint64_t> times;
    bool once = true, nested = true;
    for (std::size_t n = 0; n < spans.size(); ++n) {
        const Seen& span = spans[n];
        const std::size_t family = n / 4 * 4;
        once &= span.times == 1;
        times.push_back(span.start);
        times.push_back(span.end);
        if (n == family) {
            nested &= span.parent == 0 && span.level == 1;
            continue;
        }
        const Seen& around = spans[family + inside[n % 4]];
        nested &= span.parent == around.id && span.level == around.level + 1;
        nested &= around.start < span.start && span.end < around.end;
    }
    CHECK(once);
    CHECK(nested);
    std::sort(times.begin(), times.end());
    CHECK(std::adjacent_find(times.begin(), times.end()) == times.end());
}

}  // namespace

TEST("eight threads at full speed: every span once, nested, at times of its own") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.wait_on_overflow = true;
    start_run(settings);
    constexpr std::size_t threads = 8;
    const std::uint64_t families = scaled(50'000);
    std::vector<std::unique_ptr<EventName>> names;
    for (std::size_t t = 0; t < threads; ++t)
        names.push_back(std::make_unique<EventName>("threads", std::to_string(t)));
    std::vector<std::thread> running;
    for (auto& name : names) running.emplace_back([&] { record_families(*name, families); });
    for (auto& thread : running) thread.join();
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.error, "");

    const Trace trace = read_trace(outcome.trace_path);
    const Footer footer = check_complete(trace, "finalize");
    CHECK_EQ(footer.number("spans"), threads * 4 * families);
    CHECK_EQ(footer.number("dropped"), 0);
    std::vector<std::vector<Seen>> seen(threads, std::vector<Seen>(4 * families));
    std::map<std::uint32_t, std::string> names_of_tid;
    trace.each([&](const TraceEvent& e) {
        if (e.ph != "X") return;
        Seen& span = seen.at(std::stoul(std::string(e.name))).at(e.number("count"));
        ++span.times;
        span.id = e.id;
        span.parent = e.number("p_idx");
        span.level = static_cast<std::uint16_t>(e.number("level"));
        span.start = e.ts;
        span.end = e.ts + e.dur;
        if (names_of_tid.try_emplace(e.tid, e.name).first->second != e.name)
            CHECK_EQ(names_of_tid[e.tid], e.name);
    });
    CHECK_EQ(names_of_tid.size(), threads);
    for (const auto& spans : seen) check_families(spans);
    CHECK(dir.files(".spool").empty() && dir.files(".spool-at").empty());
}

TEST("a thousand threads come and go while another records on: nothing is lost, units come back") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 1;
    start_run(settings);
    EventName background("threads", "background"), guest("threads", "guest");
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> background_spans{0};
    std::thread busy([&] {
        while (!stop.load()) {
            for (int i = 0; i < 5; ++i) background_spans += SpanScope(background).close();
            // As fast as possible it would be the drain thread's speed that is tested.
            std::this_thread::sleep_for(std::chrono::microseconds(30));
        }
    });
    const std::uint64_t waves = scaled(50) + 5;
    constexpr std::uint64_t wave = 20, spans = 30;
    std::uint32_t most_units = 0;
    for (std::uint64_t w = 0; w < waves; ++w) {
        std::vector<std::thread> guests;
        for (std::uint64_t g = 0; g < wave; ++g)
            guests.emplace_back([&] {
                for (std::uint64_t i = 0; i < spans; ++i) SpanScope span(guest);
            });
        for (auto& thread : guests) thread.join();
        while (!current_session()) std::this_thread::yield();
        SpoolHeader& header = current_session()->header();
        for (const std::uint64_t writes = header.write_number.load();
             header.write_number.load() < writes + 3;)
            std::this_thread::yield();
        most_units = std::max(most_units, header.units.load());
    }
    stop.store(true);
    busy.join();
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    const Footer footer = check_complete(trace, "finalize");
    CHECK_EQ(footer.number("dropped"), 0);
    CHECK_EQ(footer.number("spans"), waves * wave * spans + background_spans.load());
    // Two waves' worth of threads, and what the busy one filled meanwhile.
    if (waves > 20) CHECK(most_units < 300);
}

TEST("a thread that ends inside its spans leaves them open until the run ends") {
    const ScratchDir dir;
    start_run(dir.settings());
    EventName name("threads", "left open");
    std::thread([&] {
        SpanScope outer(name), inner(name);
        outer.leak();
        inner.leak();
    }).join();
    for (int i = 0; i < 3; ++i) {
        SpanScope span(name);
        span.close();
        CHECK_EQ(current_session()->flush(), 0);
    }
    const Outcome outcome = finish_run({"finalize"});
    const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
    CHECK_EQ(footer.number("unfinished"), 2);
    CHECK_EQ(footer.number("spans"), 3);
}

TEST("threads that flush, record and name things at once do not stand in each other's way") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.flush_interval_ms = 1;
    settings.block_bytes = 512;
    start_run(settings);
    EventName common("threads", "common");
    { SpanScope first(common); }
    std::vector<std::thread> threads;
    const std::uint64_t rounds = scaled(300) + 10;
    for (int t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < rounds; ++i) {
                EventName fresh("threads", std::to_string(t) + "-" + std::to_string(i));
                SpanScope outer(common);
                record_now(Kind::instant, fresh, ",\"i\":" + std::to_string(i));
                if (i % 16 == 0) CHECK_EQ(current_session()->flush(), 0);
                CHECK(current_session()->spool_bytes_used() > 0);
            }
        });
    for (auto& thread : threads) thread.join();
    const Outcome outcome = finish_run({"finalize"});
    const Trace trace = read_trace(outcome.trace_path);
    const Footer footer = check_complete(trace, "finalize");
    CHECK_EQ(footer.number("spans"), 4 * rounds + 1);
    CHECK_EQ(footer.number("instants"), 4 * rounds);
    for (const TraceEvent& e : trace.of("i")) CHECK_EQ(e.name.substr(e.name.find('-') + 1), e.arg("i"));
}
