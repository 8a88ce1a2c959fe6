// The drain thread does what it is asked, and nobody waits for it in vain.
#include "dftrace/recording/drain.hpp"

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <functional>
#include <latch>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

// Does in each turn what the test says, and notes what it was asked for.
class Told : public Retention {
  public:
    explicit Told(Spool& spool) : Retention(spool, [](bool) {}) {}

    void thread_over(Thread&) noexcept override {}
    std::chrono::milliseconds interval(std::chrono::milliseconds wanted) const noexcept override {
        return wanted;
    }
    std::optional<int> turn(RecordFlow&, bool write_out, DumpRequest dump) override {
        const std::lock_guard lock(mutex);
        writes += write_out;
        if (!dump.reason.empty()) reasons.push_back(std::move(dump.reason));
        return in_turn();
    }
    int end(RecordFlow&, const Ending& ending) override {
        std::unique_lock lock(mutex);
        ended_how = ending.how;
        may_end.wait(lock, [this] { return !hangs; });
        return 0;
    }
    std::uint64_t release_moment() const noexcept override { return 0; }
    std::uint64_t settled_before() noexcept override { return 0; }

    std::mutex mutex;
    std::condition_variable may_end;
    bool hangs = false;
    std::function<std::optional<int>()> in_turn = [] { return 0; };
    int writes = 0;
    std::vector<std::string> reasons;
    std::string ended_how;

  private:
    UnitHeader* same_unit_again(Thread&) noexcept override { return nullptr; }
    void unit_left(Thread&) noexcept override {}
};

struct Drained {
    explicit Drained(const ScratchDir& in, std::uint32_t finish_timeout_ms = 60'000)
        : dir(in), settings(in.settings()) {
        settings.finish_timeout_ms = finish_timeout_ms;
        settings.flush_interval_ms = 3'600'000;
    }
    const ScratchDir& dir;
    TraceSettings settings;
    Spool spool{dir.file("a.spool"), 8 * unit_bytes};
    ClockMap clock = ClockMap::anchored_now(0);
    Told told{spool};
    ThreadRegistry threads{nullptr, 1};
    BlobStore blobs{told};
    RecordFlow flow{settings, spool, clock, 1, threads, blobs, told};
    Drain drain{settings, spool, flow, told};
};

}  // namespace

TEST("what cannot be written is told to whoever waits, and in the header, until it can") {
    const ScratchDir dir;
    Drained run(dir);
    int error = ENOSPC;
    run.told.in_turn = [&]() -> std::optional<int> { return error; };
    run.drain.start();
    CHECK_EQ(run.drain.dump("first", nullptr, {}), ENOSPC);
    CHECK_EQ(run.spool.header().write_error.load(), ENOSPC);
    CHECK(!run.drain.wait_for_room());
    const auto set = [&](std::function<std::optional<int>()> what) {
        const std::lock_guard lock(run.told.mutex);
        run.told.in_turn = std::move(what);
    };
    // Where nothing was tried, nothing shows that writing works again.
    set([] { return std::nullopt; });
    CHECK_EQ(run.drain.dump("second", nullptr, {}), ENOSPC);
    set([]() -> std::optional<int> { throw std::bad_alloc(); });
    CHECK_EQ(run.drain.dump("third", nullptr, {}), ENOMEM);
    set([]() -> std::optional<int> { throw std::runtime_error("of whatever kind"); });
    CHECK_EQ(run.drain.dump("fourth", nullptr, {}), EIO);
    set([] { return 0; });
    CHECK_EQ(run.drain.dump("fifth", nullptr, {}), 0);
    CHECK_EQ(run.spool.header().write_error.load(), 0);
    CHECK(run.drain.finish({"finalize"}));
}

TEST("a thread that waits for room is told when the run ends") {
    const ScratchDir dir;
    Drained run(dir);
    run.drain.start();
    CHECK(run.drain.wait_for_room());
    CHECK(run.drain.finish({"exit"}));
    CHECK(!run.drain.wait_for_room());
}

TEST("a dump that is asked for while a turn is under way is done before the end that is asked for then") {
    const ScratchDir dir;
    Drained run(dir);
    std::latch in_turn(1), may_go_on(1);
    run.told.in_turn = [&, first = true]() mutable -> std::optional<int> {
        if (std::exchange(first, false)) {
            in_turn.count_down();
            may_go_on.wait();
        }
        return 0;
    };
    run.drain.start();
    std::thread first([&] { CHECK_EQ(run.drain.dump("first", nullptr, {}), 0); });
    in_turn.wait();
    static std::atomic<bool> asked;
    asked = false;
    std::thread second([&] {
        const auto seen = [] {
            asked = true;
            asked.notify_all();
            return false;
        };
        CHECK_EQ(run.drain.dump("second", seen, {}), 0);
    });
    asked.wait(false);
    std::thread ending([&] { CHECK(run.drain.finish({"finalize"})); });
    while (run.drain.wait_for_room()) continue;  // until the end is asked for
    may_go_on.count_down();
    for (std::thread* thread : {&first, &second, &ending}) thread->join();
    CHECK((run.told.reasons == std::vector<std::string>{"first", "second"}));
}

TEST("where nobody asks for the end it is written nonetheless, and the thread is gone") {
    const ScratchDir dir;
    Drained run(dir);
    {
        Drain drain{run.settings, run.spool, run.flow, run.told};
        drain.start();
        CHECK_EQ(drain.dump("asked", nullptr, {}), 0);
    }
    CHECK_EQ(run.spool.header().finalized.load(), 1);
    CHECK(run.spool.removed());
    CHECK(run.dir.files(".spool-at").empty());
}

TEST("an end that hangs is given up, and whoever waits then is told so") {
    const ScratchDir dir;
    auto* run = new Drained(dir, 50);  // left behind, as a session is whose drain thread hangs
    run->told.hangs = true;
    run->drain.start();
    CHECK(!run->drain.finish({"finalize"}));
    CHECK_EQ(run->drain.dump("late", nullptr, {}), ETIMEDOUT);
    CHECK_EQ(run->spool.header().finalized.load(), 0);
    CHECK(!run->spool.removed());
}
