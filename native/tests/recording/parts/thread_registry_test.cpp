// Threads come, record, and go, without a session.
#include "dftrace/recording/thread_registry.hpp"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

struct Registered {
    ScratchDir dir;
    Spool spool{dir.file("a.spool"), 64 * unit_bytes};
    UnitSupply supply{spool};
    ThreadRegistry threads{nullptr, 5};
};

}  // namespace

TEST("a thread that comes has a unit that says whose it is") {
    Registered at;
    Thread* thread = at.threads.attach(at.supply, 77, "loader");
    REQUIRE(thread);
    CHECK_EQ(thread->generation, 5);
    CHECK_EQ(thread->block->tid, 77);
    CHECK_EQ(thread->block->name, "loader");
    CHECK_EQ(thread->unit->owner, thread->number);
    CHECK(at.threads.sources().empty());
    at.threads.take_in_new_sources();
    REQUIRE_EQ(at.threads.sources().size(), 1);
    CHECK_EQ(at.threads.sources()[0]->track.name, "loader");
    CHECK(at.threads.sources()[0]->thread == thread);
}

TEST("where there is no unit, there is no state") {
    Registered at;
    while (at.supply.take(UnitKind::ring, 1)) continue;
    CHECK(at.threads.attach(at.supply, 1, "late") == nullptr);
    at.threads.take_in_new_sources();
    CHECK(at.threads.sources().empty());
}

TEST("only those of which it is said are dropped, and each is told once its thread is forgotten") {
    Registered at;
    for (std::uint32_t tid = 1; tid <= 6; ++tid) REQUIRE(at.threads.attach(at.supply, tid, "t"));
    at.threads.take_in_new_sources();
    std::set<std::uint32_t> told;
    at.threads.drop([](const Source& source) { return source.track.tid % 2 == 0; },
                    [&](const Source& source) { told.insert(source.track.tid); });
    CHECK((told == std::set<std::uint32_t>{2, 4, 6}));
    REQUIRE_EQ(at.threads.sources().size(), 3);
    for (const auto& source : at.threads.sources()) CHECK_EQ(source->track.tid % 2, 1);
}

TEST("a span is taken off the stack of the thread that began it, and of no other") {
    Registered at;
    Thread* began = at.threads.attach(at.supply, 1, "began");
    Thread* other = at.threads.attach(at.supply, 2, "ends");
    REQUIRE(began && other);
    std::uint64_t id = 0;
    for (Thread* thread : {began, other}) {
        thread->next_id = at.threads.new_ids(10);
        thread->end_id = thread->next_id + 10;
        const OpenSpan* span = thread->push(1, 0);
        if (thread == began) id = span->id;
    }
    at.threads.remove_open_elsewhere(*other, id);
    CHECK_EQ(began->depth, 0);
    CHECK_EQ(other->depth, 1);
}

TEST("threads that come at once get states and ids of their own") {
    Registered at;
    std::vector<Thread*> states(16);
    std::vector<std::uint64_t> ids(states.size());
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < states.size(); ++t)
        threads.emplace_back([&, t] {
            states[t] = at.threads.attach(at.supply, static_cast<std::uint32_t>(t + 1), std::to_string(t));
            ids[t] = at.threads.new_ids(100);
        });
    for (int i = 0; i < 100; ++i) at.threads.take_in_new_sources();
    for (std::thread& thread : threads) thread.join();
    at.threads.take_in_new_sources();
    CHECK_EQ(at.threads.sources().size(), states.size());
    std::set<std::uint32_t> numbers;
    for (const Thread* state : states) {
        REQUIRE(state);
        numbers.insert(state->number);
    }
    CHECK_EQ(numbers.size(), states.size());
    CHECK_EQ(std::set<std::uint64_t>(ids.begin(), ids.end()).size(), ids.size());
}
