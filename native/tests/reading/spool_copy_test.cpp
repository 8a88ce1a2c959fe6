// Parts of a spool that are copied while its threads go on storing.
#include "dftrace/reading/spool_copy.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;

TEST("a stack that changes faster than it can be copied is told as far as it stayed the same") {
    const ScratchDir dir;
    TraceSettings s = dir.settings();
    s.flush_interval_ms = 1'000'000;  // the drain thread does nothing
    start_run(s);
    std::atomic<bool> begun{false};
    std::jthread busy([&](const std::stop_token& stop) {
        EventName name("live", "span");
        Thread* thread = recording_thread();
        const std::uint32_t node = name.in(*thread);
        thread->push(node, 0);
        begun = true;
        while (!stop.stop_requested()) {
            const std::uint64_t a = thread->push(node, 0)->id;
            const std::uint64_t b = thread->push(node, 0)->id;
            const std::uint64_t c = thread->push(node, 0)->id;
            for (const std::uint64_t id : {c, b, a}) thread->pop(id);
        }
        thread->pop(thread->top()->id);
    });
    while (!begun) std::this_thread::yield();
    const SpoolCopy copy(dir.only(".spool"));
    const auto units = copy.units();
    const auto first = std::ranges::find(units, UnitKind::thread, &UnitFacts::kind);
    REQUIRE(first != units.end());
    // Looks between which the thread went on, however little of the machine it gets.
    std::uint64_t changes = 0, innermost = 0;
    for (std::uint64_t round = 0; round < 300'000 && changes < scaled(20'000); ++round) {
        const auto stack = copy.stack(*first);
        REQUIRE(stack && !stack->open.empty());
        changes += stack->open.size() == 1 || stack->open.back().id != innermost;
        innermost = stack->open.back().id;
        for (std::size_t i = 0; i < stack->open.size(); ++i) {
            REQUIRE_EQ(stack->open[i].parent, i ? stack->open[i - 1].id : 0);
            REQUIRE_EQ(stack->open[i].level, i + 1);
        }
    }
    busy.request_stop();
    busy.join();
    finish_run({"finalize"});
}

TEST("records that are copied while their unit is used again are given up") {
    const ScratchDir dir;
    TraceSettings s = dir.settings();
    s.flush_interval_ms = 1;
    s.block_bytes = 4096;
    s.spool_bytes = 6 * unit_bytes;
    s.wait_on_overflow = true;
    start_run(s);
    std::atomic<bool> begun{false};
    std::jthread busy([&](const std::stop_token& stop) {
        EventName name("live", "numbered");
        for (std::uint64_t n = 0; !stop.stop_requested(); ++n) {
            SpanScope span(name);
            span.close({0, n, RecordFlag::has_count});
            begun = true;
        }
    });
    while (!begun) std::this_thread::yield();
    const SpoolCopy copy(dir.only(".spool"));
    std::vector<Record> records;
    std::uint64_t whole = 0;
    for (std::uint64_t round = 0; round < scaled(5000); ++round)
        for (std::uint32_t i = 1; i < 6; ++i) {
            const auto listed = copy.unit(i);
            if (!listed || !listed->may_hold_records()) continue;
            const auto facts = copy.records(*listed, records);
            if (!facts) continue;
            whole += !records.empty();
            for (std::size_t k = 0; k < records.size(); ++k)
                if (records[k].value != facts->before + k) {
                    CHECK_EQ(records[k].value, facts->before + k);
                    break;
                }
        }
    CHECK(whole > 0);
    busy.request_stop();
    busy.join();
    CHECK_EQ(finish_run({"finalize"}).error, "");
}

TEST("a unit that is handed out or starts over never seems to hold less, or more, than was stored") {
    const ScratchDir dir;
    Spool spool(dir.file("units.spool"), 8 * unit_bytes);
    UnitHeader* unit = spool.acquire(UnitKind::ring, 1, 1, 5000);
    const std::uint32_t index = spool.index_of(unit), full = unit->capacity;
    std::atomic<std::uint64_t> stored{5000};
    std::jthread busy([&](const std::stop_token& stop) {
        for (std::uint64_t turn = 1; !stop.stop_requested(); ++turn) {
            unit->committed.store(full, std::memory_order_release);
            stored.fetch_add(full);
            if (turn % 4) {
                unit->start_over();
                continue;
            }
            spool.release(unit);
            REQUIRE(spool.acquire(UnitKind::ring, 1, 1, stored.load()) == unit);
        }
    });
    const SpoolCopy copy(dir.file("units.spool"));
    std::vector<Record> records;
    std::uint64_t seen = 0;
    for (std::uint64_t round = 0; round < scaled(200'000); ++round) {
        const std::uint64_t least = stored.load();
        const auto listed = copy.unit(index);
        const auto facts = listed && listed->owner == 1 ? copy.records(*listed, records) : std::nullopt;
        if (!facts) continue;
        const std::uint64_t most = stored.load() + full;  // may be stored and not counted yet
        const std::uint64_t count = facts->before + facts->committed;
        if (count < least || count > most) CHECK_EQ(count, least);
        ++seen;
    }
    CHECK(seen > 0);
}
