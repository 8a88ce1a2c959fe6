// The two ways in which a thread gets its next unit, and what becomes of the full one.
#include "dftrace/recording/retention.hpp"

#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "dftrace/recording/thread_registry.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

// A thread that fills its units, and nobody who writes them.
struct Filling {
    explicit Filling(bool flight_recorder, std::size_t units = 5) : limit(units) {
        TraceSettings settings = dir.settings();
        settings.flight_recorder = flight_recorder;
        retention = make_retention(settings, spool, [this](bool write_out) {
            ++woken;
            asked_to_write += write_out;
        });
        thread = threads.attach(*retention, 1, "filling");
    }
    // Fills the unit that the thread has, with spans that end at ticks 1, 2, ...
    void fill() {
        Record* records = records_of(thread->unit);
        for (std::uint32_t i = 0; i < thread->unit->capacity; ++i) {
            records[i] = Record{};
            records[i].kind = Kind::span;
            records[i].end = ++tick;
        }
        thread->unit->committed.store(thread->unit->capacity);
    }
    UnitHeader* next() {
        UnitHeader* unit = retention->next_unit(*thread);
        if (unit) thread->unit = unit;
        return unit;
    }
    void written(UnitHeader* unit) {
        unit->consumed = unit->capacity;
        thread->source->unit = unit;
        thread->source->scan = unit->capacity;
    }

    ScratchDir dir;
    std::size_t limit;
    Spool spool{dir.file("a.spool"), limit* unit_bytes};
    int woken = 0;
    int asked_to_write = 0;
    std::unique_ptr<Retention> retention;
    ThreadRegistry threads{nullptr, 1};
    Thread* thread = nullptr;
    std::uint64_t tick = 0;
};

}  // namespace

TEST("a unit follows the one before, for whoever walks the chain") {
    for (const bool flight_recorder : {false, true}) {
        Filling filling(flight_recorder);
        UnitHeader* first = filling.thread->unit;
        filling.fill();
        UnitHeader* second = filling.next();
        REQUIRE(second);
        CHECK_EQ(first->next.load(), filling.spool.index_of(second));
        CHECK_EQ(second->before, first->capacity);
        CHECK_EQ(filling.woken, flight_recorder ? 0 : 1);
    }
}

TEST("a stream without room gives a thread its own unit again once that is in the file, and not before") {
    Filling filling(false);
    while (true) {
        filling.fill();
        if (!filling.next()) break;
    }
    UnitHeader* last = filling.thread->unit;
    CHECK_EQ(filling.spool.header().units.load(), filling.limit);
    CHECK(filling.next() == nullptr);
    filling.written(last);
    CHECK(filling.next() == last);
    CHECK_EQ(last->committed.load(), 0);
    CHECK_EQ(last->consumed, 0);
    CHECK_EQ(filling.thread->source->scan, 0);
}

TEST("a thread that was refused asks again when a unit has come back") {
    Filling filling(false);
    UnitHeader* other = filling.retention->take(UnitKind::ring, 9);
    while (true) {
        filling.fill();
        if (!filling.next()) break;
    }
    filling.retention->give_back(other);
    CHECK(filling.next() == other);
}

TEST("a flight recorder lets go of the oldest unit, and says from when on all is there") {
    Filling filling(true);
    for (int n = 0; n < 20; ++n) {
        filling.fill();
        REQUIRE(filling.next());
    }
    const std::uint64_t complete_from = filling.spool.header().complete_from.load();
    const std::uint64_t overwritten = filling.spool.header().overwritten.load();
    CHECK_EQ(filling.spool.header().units.load(), filling.limit);
    CHECK(overwritten > 0 && overwritten < filling.tick);
    CHECK_EQ(complete_from, overwritten + 1);
}

TEST("the end of a thread is told at once in a stream, with a wake for many of them") {
    Filling filling(false, 64);
    for (std::uint32_t n = 0; n < 40; ++n) {
        Thread* thread = filling.threads.attach(*filling.retention, n, "short");
        REQUIRE(thread);
        filling.retention->thread_over(*thread);
        CHECK_EQ(thread->block->ended.load(), 1);
    }
    CHECK_EQ(filling.asked_to_write, 1);
}
