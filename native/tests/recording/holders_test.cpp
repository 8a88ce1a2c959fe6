// Who waits in a session keeps it; who is forked meanwhile lets go of it.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "standing_disk.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

EventName& span_name() {
    static EventName name("holders", "span");
    return name;
}

void record_one() { SpanScope span(span_name()); }

// How often the parent's spool is open or mapped in this process. By its number in the file system: it may
// have been opened before it had its name.
std::size_t ties_to(const std::string& spool) {
    struct stat wanted, info;
    REQUIRE(stat(spool.c_str(), &wanted) == 0);
    std::size_t found = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
        found += stat(entry.path().c_str(), &info) == 0 && info.st_ino == wanted.st_ino &&
                 info.st_dev == wanted.st_dev;
    const std::string beside = " " + std::filesystem::path(spool).parent_path().string() + "/";
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
        std::istringstream fields(line);
        std::string skipped;
        ino_t number = 0;
        fields >> skipped >> skipped >> skipped >> skipped >> number;
        found += number == wanted.st_ino && line.find(beside) != std::string::npos;
    }
    return found;
}

void wait_until_gone(const std::string& path) {
    while (std::filesystem::exists(path)) std::this_thread::yield();
}

std::uint64_t spans_of(const std::string& path) {
    return check_complete(read_trace(path), "finalize").number("spans");
}

// A run with one span, whose drain thread hangs in a write to its trace.
struct HangingRun {
    ScratchDir dir;
    std::unique_ptr<StandingDisk> disk;
    std::string spool;

    explicit HangingRun(std::uint32_t finish_timeout_ms) {
        TraceSettings settings = dir.settings();
        settings.finish_timeout_ms = finish_timeout_ms;
        start_run(settings);
        record_one();
        disk = std::make_unique<StandingDisk>(dir.path());
        spool = current_session()->spool_path();
        current_session()->wake(true);
        disk->wait_for_a_writer();
    }
};

}  // namespace

TEST("who holds the session of a run that has ended may still wait in it and look at it") {
    const ScratchDir dir;
    const std::size_t descriptors = open_descriptors();
    start_run(dir.settings());
    CHECK(held_session() == nullptr);
    record_one();
    std::shared_ptr<Session> held = held_session();
    REQUIRE(held != nullptr);
    const std::string first = finish_run({"finalize"}).trace_path;
    CHECK(held_session() == nullptr);
    start_run(dir.settings());
    record_one();
    CHECK_EQ(held->flush(), 0);
    CHECK_EQ(held->dump("late"), 0);
    CHECK_EQ(held->header().finalized.load(), 1);
    CHECK(held != held_session());
    const std::string second = finish_run({"finalize"}).trace_path;
    CHECK_EQ(spans_of(first), 1);
    CHECK_EQ(spans_of(second), 1);
    held.reset();
    CHECK_EQ(open_descriptors(), descriptors);
}

TEST("a run may be ended by the very thread that waits in a flush, on a disk that stands still") {
    HangingRun run(10);
    static Outcome outcome;
    const int error = held_session()->flush([] {
        outcome = finish_run({"finalize"});
        return false;
    });
    CHECK_EQ(error, ETIMEDOUT);  // what was asked for is not in the file
    CHECK(outcome.abandoned);
    // Another run, while the first one's drain thread still hangs.
    const ScratchDir other;
    start_run(other.settings());
    record_one();
    CHECK_EQ(spans_of(finish_run({"finalize"}).trace_path), 1);
    run.disk.reset();
    wait_until_gone(run.spool);
    CHECK_EQ(spans_of(run.dir.only(".pfw.gz")), 1);
}

TEST(
    "who stands in a dump, while its run is ended, others come and go, and the process is forked, goes on "
    "well") {
    static std::atomic<bool> stands, may_go_on;
    for (const bool flight_recorder : {false, true})
        for (const bool given_up : {false, true}) {
            const std::size_t descriptors = open_descriptors();
            {
                stands = may_go_on = false;
                const ScratchDir dir, other;
                TraceSettings settings = dir.settings();
                settings.flight_recorder = flight_recorder;
                settings.finish_timeout_ms = given_up ? 10 : 100'000;
                settings.flush_interval_ms = 3'600'000;
                start_run(settings);
                record_one();
                std::shared_ptr<Session> held = held_session();
                const std::string spool = held->spool_path();
                auto disk = std::make_unique<StandingDisk>(dir.path());
                std::thread standing([&held, given_up] {
                    const std::shared_ptr<Session> mine = std::move(held);
                    const int error = mine->dump("asked", [] {
                        stands = true;
                        stands.notify_all();
                        may_go_on.wait(false);
                        return false;
                    });
                    CHECK_EQ(error, given_up ? ETIMEDOUT : 0);
                    CHECK_EQ(mine->flush(), error);
                    CHECK_EQ(mine->header().finalized.load(), given_up ? 0 : 1);
                    CHECK(mine->spool_bytes_used() > 0 && !mine->spool_path().empty());
                });
                stands.wait(false);
                disk->wait_for_a_writer();
                std::thread ending([] { finish_run({"finalize"}); });
                if (given_up) ending.join();
                while (run_is_on()) std::this_thread::yield();
                settings.prefix = other.file("trace");
                settings.spool_dir = other.path();
                settings.finish_timeout_ms = 100'000;  // a busy machine may need more than those 10
                // Completed one after the other, in the order in which they were stopped.
                std::uint64_t number = start_run(settings);
                record_one();
                CHECK_EQ(held_session()->dump("another"), 0);
                CHECK(in_child([&] {
                    CHECK_EQ(ties_to(spool), 0);
                    CHECK(current_session() == nullptr && held_session() == nullptr);
                    CHECK_EQ(finish_run({"exit"}).trace_path, "");
                }));
                number = stop_run(number);
                if (!given_up) {
                    disk.reset();
                    ending.join();
                }
                CHECK_EQ(spans_of(complete_run({"finalize"}, number).trace_path), 1);
                may_go_on = true;
                may_go_on.notify_all();
                standing.join();
                disk.reset();
                wait_until_gone(spool);
                CHECK_EQ(spans_of(dir.only(".pfw.gz")), 1);
            }
            // Of a run that was given up all stays.
            if (!given_up) CHECK_EQ(open_descriptors(), descriptors);
        }
}

TEST("a process forked by the thread that waits in a flush goes on by itself") {
    HangingRun run(100'000);
    static pid_t child = -1;
    std::fflush(stdout);
    std::shared_ptr<Session> held = held_session();
    const int error = held->flush([] {
        if (child < 0) child = fork();
        return child != 0;
    });
    if (child == 0) {
        held.reset();
        bool well = error == 0 && ties_to(run.spool) == 0 && held_session() == nullptr;
#ifndef __SANITIZE_THREAD__  // which knows no threads in forked children
        record_one();
        well = well && held_session() != nullptr;
#endif
        _exit(well ? 0 : 1);
    }
    CHECK_EQ(error, EINTR);
    held.reset();
    const int status = wait_for(child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    run.disk.reset();
    CHECK_EQ(spans_of(finish_run({"finalize"}).trace_path), 1);
}

TEST("two hundred threads at a time record one span and end, while runs begin and end") {
    const ScratchDir dir;
    std::mutex interpreter;  // held by who records, who asks for the session, and who begins or stops a run
    std::atomic<bool> stop{false};
    std::atomic<std::uint64_t> recorded{0};
    std::thread storm([&] {
        while (!stop.load()) {
            std::vector<std::thread> threads;
            for (int t = 0; t < 200; ++t)
                threads.emplace_back([&] {
                    const std::lock_guard turn(interpreter);
                    SpanScope span(span_name());
                    recorded += span.close();
                });
            for (auto& thread : threads) thread.join();
        }
    });
    std::thread reader([&] {
        while (!stop.load()) {
            std::shared_ptr<Session> held;
            {
                const std::lock_guard turn(interpreter);
                held = held_session();
            }
            if (held) CHECK(held->flush() == 0 && held->spool_bytes_used() > 0);
        }
    });
    std::uint64_t written = 0;
    const std::uint64_t runs = scaled(20) + 5;
    for (std::uint64_t i = 0; i < runs; ++i) {
        const std::uint64_t before = recorded.load();
        {
            const std::lock_guard turn(interpreter);
            start_run(dir.settings());
        }
        while (recorded.load() < before + 20) std::this_thread::yield();
        std::uint64_t stopped = 0;
        {
            const std::lock_guard turn(interpreter);
            stopped = stop_run();
        }
        const Outcome outcome = complete_run({"finalize"}, stopped);
        CHECK_EQ(outcome.losses.dropped, 0);
        written += spans_of(outcome.trace_path);
    }
    stop.store(true);
    storm.join();
    reader.join();
    CHECK_EQ(written, recorded.load());
    CHECK(dir.files(".spool").empty());
}
