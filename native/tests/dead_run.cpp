// Looking at the spools of the dead.
#include "dead_run.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "check.hpp"
#include "dftrace/adoption.hpp"
#include "scratch.hpp"

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
    if (!fate.file_limit.empty()) setenv("DFTRACE_FILE_LIMIT", fate.file_limit.c_str(), 1);
    const int status = wait_for(start_victim(arguments));
    unsetenv("DFTRACE_KILL");
    unsetenv("DFTRACE_FILE_LIMIT");
    return status;
}
