// Looking at the spools of the dead.
#include "dead_run.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "check.hpp"
#include "dftrace/reading/adoption.hpp"
#include "dftrace/recording/runtime.hpp"

OpenedSpool::OpenedSpool(const std::string& path) {
    const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    struct stat info {};
    if (fd < 0 || fstat(fd, &info) != 0) throw std::runtime_error("cannot open " + path);
    bytes_ = static_cast<std::size_t>(info.st_size);
    void* mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) throw std::runtime_error("cannot map " + path);
    base_ = static_cast<char*>(mapped);
}

OpenedSpool::~OpenedSpool() { munmap(base_, bytes_); }

std::string leave_spool(const ScratchDir& dir, const dftrace::TraceSettings& settings,
                        const std::function<void()>& body) {
    const pid_t child = fork();
    if (child == 0) {
        dftrace::start_run(settings);
        body();
        kill(getpid(), SIGKILL);
    }
    REQUIRE(was_killed(wait_for(child)));
    std::string path = dir.only(".spool");
    // Without the room that was made ready and that nobody took: it is as long as its units.
    const std::size_t units = OpenedSpool(path).header().units.load();
    std::filesystem::resize_file(path, units * dftrace::unit_bytes);
    return path;
}

dftrace::TraceSettings unwritten(dftrace::TraceSettings settings) {
    settings.flush_interval_ms = 100'000;
    return settings;
}

Trace adopted(const std::string& spool) {
    const dftrace::AdoptionResult result = dftrace::adopt_spool(spool);
    CHECK_EQ(result.outcome.error, "");
    REQUIRE(result.state == dftrace::Adopted::finished);
    CHECK_EQ(result.outcome.spool_path, "");
    CHECK(access(spool.c_str(), F_OK) != 0);
    return read_trace(result.outcome.trace_path);
}

std::vector<std::string> span_lines(const Trace& trace) {
    std::vector<std::string> lines;
    trace.each([&lines](const TraceEvent& e) {
        if (e.ph != "X" && e.ph != "B") return;
        std::string line(e.line);
        const std::string track = "\"tid\":" + std::to_string(e.tid);
        if (e.tid >= 0x40000000) line.replace(line.find(track), track.size(), "\"tid\":0");
        lines.push_back(std::move(line));
    });
    std::sort(lines.begin(), lines.end());
    return lines;
}

int run_victim(const std::vector<std::string>& arguments, const Fate& fate) {
    if (!fate.kill_at.empty()) setenv("DFTRACE_KILL", fate.kill_at.c_str(), 1);
    if (!fate.disk_limit.empty()) setenv("DFTRACE_DISK_LIMIT", fate.disk_limit.c_str(), 1);
    const int status = wait_for(start_victim(arguments));
    unsetenv("DFTRACE_KILL");
    unsetenv("DFTRACE_DISK_LIMIT");
    return status;
}

bool was_killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

Confirmed::Confirmed(const std::string& path) : path_(path) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    REQUIRE(fd >= 0 && ftruncate(fd, 4096) == 0);
    void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    REQUIRE(mapped != MAP_FAILED);
    counts_ = static_cast<std::atomic<std::uint64_t>*>(mapped);
}

Confirmed::~Confirmed() { munmap(counts_, 4096); }

std::uint64_t Confirmed::sum(std::size_t threads) const {
    std::uint64_t all = 0;
    for (std::size_t t = 0; t < threads; ++t) all += of(t);
    return all;
}

void kill_after(pid_t victim, const Confirmed& confirmed, std::size_t threads, std::uint64_t records,
                std::mt19937& random) {
    while (confirmed.sum(threads) < records) {
        REQUIRE(waitpid(victim, nullptr, WNOHANG) == 0);  // it must not die by itself
        sched_yield();
    }
    for (volatile auto spin = random() % 20'000; spin > 0;) spin = spin - 1;
    kill(victim, SIGKILL);
    REQUIRE(was_killed(wait_for(victim)));
}
