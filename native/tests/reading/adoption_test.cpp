// Whose spool may be adopted, whose may not, and what an adopted trace holds.
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/reading/adoption.hpp"
#include "dftrace/system/host_name.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

void record(int spans) {
    EventName name("adoption", "span");
    for (int i = 0; i < spans; ++i) SpanScope span(name);
}

AdoptionResult check_refused(const std::string& path, Adopted state) {
    const AdoptionResult result = adopt_spool(path);
    CHECK(result.state == state);
    CHECK_EQ(result.outcome.spool_path, path);
    CHECK_EQ(result.outcome.error.empty(), state != Adopted::failed);
    return result;
}

}  // namespace

TEST("a spool is adopted once; then it is gone") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] { record(100); });
    const Trace trace = adopted(spool);
    CHECK_EQ(check_complete(trace, "died").number("spans"), 100);
    const std::string bytes = file_bytes(trace.path);
    check_refused(spool, Adopted::gone);
    CHECK(file_bytes(trace.path) == bytes);
}

TEST("a spool whose process lives is left alone") {
    const ScratchDir dir;
    start_run(dir.settings());
    record(10);
    check_refused(current_session()->spool_path(), Adopted::alive);
    record(10);
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.error, "");
    CHECK_EQ(check_complete(read_trace(outcome.trace_path), "finalize").number("spans"), 20);
}

TEST("a spool that another adopts right now is left alone") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] { record(10); });
    const int other = open(spool.c_str(), O_RDWR | O_CLOEXEC);
    REQUIRE(other >= 0 && flock(other, LOCK_EX | LOCK_NB) == 0);
    check_refused(spool, Adopted::alive);
    close(other);
    CHECK_EQ(adopted(spool).count("X"), 10);
}

TEST("a spool of another host is left alone") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.host = "elsewhere";
    const std::string spool = leave_spool(dir, settings, [] { record(10); });
    check_refused(spool, Adopted::alive);
}

TEST("a pid that was given out again, or before a reboot, does not stand for the process") {
    for (const bool reboot : {false, true}) {
        const ScratchDir dir;
        const std::string spool = leave_spool(dir, dir.settings(), [] { record(10); });
        {
            const OpenedSpool opened(spool);
            opened.header().pid = static_cast<std::uint32_t>(getpid());
            opened.header().process_start = ProcessIdentity::self().start;
            if (reboot)
                std::strcpy(opened.header().boot_id, "another boot");
            else
                ++opened.header().process_start;
        }
        CHECK_EQ(adopted(spool).count("X"), 10);
    }
}

TEST("what is no spool is refused, stays as it is, and costs nothing") {
    const ScratchDir dir;
    const std::size_t before = open_descriptors();
    std::ofstream(dir.file("empty.spool"));
    std::ofstream(dir.file("text.spool")) << std::string(200'000, 'x');
    mkdir(dir.file("directory.spool").c_str(), 0700);
    REQUIRE(symlink(dir.file("text.spool").c_str(), dir.file("link.spool").c_str()) == 0);
    for (int i = 0; i < 20; ++i)
        for (const char* name : {"empty", "text", "directory", "link"})
            check_refused(dir.file(std::string(name) + ".spool"), Adopted::failed);
    check_refused(dir.file("missing.spool"), Adopted::gone);
    CHECK_EQ(file_bytes(dir.file("text.spool")), std::string(200'000, 'x'));
    CHECK_EQ(open_descriptors(), before);
}

TEST("a spool of a newer version is refused with both versions named") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] { record(10); });
    OpenedSpool(spool).header().version = 77;
    const std::string error = check_refused(spool, Adopted::failed).outcome.error;
    CHECK(error.find("77") != std::string::npos);
    CHECK(error.find(std::to_string(spool_version)) != std::string::npos);
    OpenedSpool(spool).header().version = spool_version;
    CHECK_EQ(adopted(spool).count("X"), 10);
}

TEST("a spool that is cut short gives what is left of it") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(5000); });
    const auto units = fs::file_size(spool) / unit_bytes;
    REQUIRE(units > 5);
    for (std::uintmax_t left = units - 1; left > 0; --left) {
        const ScratchDir copy;
        const std::string cut = copy.file("cut.spool");
        fs::copy_file(spool, cut);
        fs::resize_file(cut, left * unit_bytes - (left % 2 ? 0 : 1000));
        const AdoptionResult result = adopt_spool(cut);
        if (left * unit_bytes - 1000 < unit_bytes && left % 2 == 0) continue;
        CHECK(result.state == Adopted::finished);
        if (result.state != Adopted::finished || result.outcome.trace_path.empty()) continue;
        const Trace trace = read_trace(result.outcome.trace_path);
        CHECK(check_complete(trace, "died").number("spans") < 5000);
        fs::remove(result.outcome.trace_path);
    }
}

TEST("a process with arguments too long for its spool's header leaves a trace all the same") {
    const ScratchDir dir;
    TraceSettings settings = dir.settings();
    settings.command_json = "\"" + std::string(100'000, 'x') + "\"";
    settings.header_json = ",\"cmdline\":[" + settings.command_json + "]";
    const std::string spool = leave_spool(dir, settings, [] { record(10); });
    CHECK_EQ(check_complete(adopted(spool), "died").number("spans"), 10);
}

TEST("nothing recorded, nothing written") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] {
        CHECK(recording_thread() != nullptr);  // attached, no more
    });
    const AdoptionResult result = adopt_spool(spool);
    CHECK(result.state == Adopted::finished);
    CHECK_EQ(result.outcome.trace_path, "");
    CHECK(dir.files(".pfw.gz").empty() && dir.files(".spool").empty());
}

TEST("a trace that cannot be gone on with is left, however often it is tried, until it can") {
    const ScratchDir dir;
    TraceSettings settings = unwritten(dir.settings());
    settings.block_bytes = 500;
    const std::string spool = leave_spool(dir, settings, [] {
        record(100);
        current_session()->flush();
        record(100);
    });
    const std::string path = dir.only(".pfw.gz");
    fs::rename(path, dir.file("aside"));
    for (int i = 0; i < 5; ++i) {
        const AdoptionResult result = adopt_spool(spool);
        CHECK(result.state == Adopted::failed);
        CHECK(result.outcome.error.find(path) != std::string::npos);
        CHECK(dir.files(".pfw.gz").empty());
    }
    fs::rename(dir.file("aside"), path);
    CHECK_EQ(check_complete(adopted(spool), "died").number("spans"), 200);
}

TEST("a file that only bears the name that the trace was to have is not touched") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(10); });
    const std::string name = dir.file("trace-" + host_name() + "-1.pfw.gz");
    std::ofstream(name) << "somebody else's";
    {
        const OpenedSpool opened(spool);  // killed between saying the name and making the file
        opened.header().pid = 0x7FFF'FFFF;
        opened.header().trace_paths[0].set(0, name);
    }
    const Trace trace = adopted(spool);
    CHECK(trace.path != name);
    CHECK_EQ(check_complete(trace, "died").number("spans"), 10);
    CHECK_EQ(file_bytes(name), "somebody else's");
}

TEST("an empty file that the dead process had just made becomes its trace") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(10); });
    const std::string name = dir.file("trace-made.pfw.gz");
    std::ofstream{name};
    {
        const OpenedSpool opened(spool);
        opened.header().trace_paths[0].set(0, name);
    }
    CHECK_EQ(adopted(spool).path, name);
    CHECK_EQ(dir.files(".pfw.gz").size(), 1);
}

TEST("a marker goes before its spool does") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, dir.settings(), [] { record(10); });
    const std::string marker = dir.file("trace.spool-at");
    std::ofstream(marker) << spool;
    CHECK(adopt_spool(spool, {.directory = dir.path(), .marker = "trace.spool-at"}).state ==
          Adopted::finished);
    CHECK(!fs::exists(marker) && !fs::exists(spool));
}

TEST("a thread whose number is damaged has a track of its own, and no record gets on a strange one") {
    for (const std::uint32_t number : {0u, 0x7FFF'FFFFu, 0x8000'1234u}) {
        const ScratchDir dir;
        const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(10); });
        {
            const OpenedSpool opened(spool);
            REQUIRE(opened.unit(1).kind == UnitKind::thread);
            auto* thread = reinterpret_cast<ThreadBlock*>(&opened.unit(1));
            thread->tid = number;
            records_of(&opened.unit(1))[3].lane = number | 1;
        }
        const AdoptionResult result = adopt_spool(spool);
        CHECK(result.state == Adopted::finished);
        CHECK_EQ(result.damage.size(), 2);
        const Trace trace = read_trace(result.outcome.trace_path);
        const auto spans = trace.of("X");
        CHECK_EQ(spans.size(), 9);
        for (const TraceEvent& e : spans) CHECK(e.tid > 1u << 22 && e.tid < first_task_lane);
    }
}

TEST("pages that a crash of the machine lost are survived") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(6000); });
    const std::string whole = file_bytes(spool);
    for (std::size_t page = unit_bytes / 4096; page < whole.size() / 4096; page += 3) {
        const ScratchDir copy;
        std::string torn = whole;
        std::memset(torn.data() + page * 4096, 0, 4096);
        std::ofstream(copy.file("torn.spool"), std::ios::binary) << torn;
        const AdoptionResult result = adopt_spool(copy.file("torn.spool"));
        CHECK(result.state == Adopted::finished);
        if (result.outcome.trace_path.empty()) continue;  // it was the thread's own page
        const Trace trace = read_trace(result.outcome.trace_path);
        CHECK(check_complete(trace, "died").number("spans") <= 6000);
        fs::remove(result.outcome.trace_path);
    }
}

TEST("several processors write the same trace as one") {
    cpu_set_t all, one;
    REQUIRE_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) SKIP("there is one processor");
    CPU_ZERO(&one);
    for (int cpu = 0; CPU_COUNT(&one) == 0; ++cpu)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    for (const Compression compression : {Compression::gzip, Compression::zstd, Compression::none}) {
        const ScratchDir dir;
        TraceSettings settings = unwritten(dir.settings());
        settings.compression = compression;
        settings.block_bytes = 10'000;
        const std::string spool = leave_spool(dir, settings, [] { record(20'000); });
        // A time that cannot be: until when the process lived is reckoned by clocks, to a microsecond or two.
        fs::last_write_time(spool, fs::file_time_type::clock::now() + std::chrono::hours(1));
        std::map<std::string, std::pair<std::string, fs::file_time_type>> left;
        for (const std::string& path : dir.files())
            left[path] = {file_bytes(path), fs::last_write_time(path)};
        const std::string several = adopted(spool).path;
        const std::string by_several = file_bytes(several);
        fs::remove(several);
        for (const auto& [path, file] : left) {
            std::ofstream(path, std::ios::binary) << file.first;
            fs::last_write_time(path, file.second);
        }
        REQUIRE_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        const Trace trace = adopted(spool);
        REQUIRE_EQ(sched_setaffinity(0, sizeof all, &all), 0);
        CHECK_EQ(check_complete(trace, "died").number("spans"), 20'000);
        CHECK(file_bytes(trace.path) == by_several);
    }
}
