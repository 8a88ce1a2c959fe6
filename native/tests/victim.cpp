// A program that is made to be killed: it records, or adopts, until it dies.
//
//   victim record DIR CONFIRMED THREADS BLOCK_BYTES INTERVAL_MS COMPRESSION UNITS
//   victim finish DIR COMPRESSION BLOCK_BYTES
//   victim adopt SPOOL
//
// With DFTRACE_KILL=before:3, inside:3 or after:3 in the environment it dies at its third write to
// a trace file: before it, with half of it done, or just after it. With DFTRACE_FILE_LIMIT the disk
// is full when a trace file has that many bytes.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dftrace/adoption.hpp"
#include "span_scope.hpp"

using namespace dftrace;

namespace {

ssize_t plain_write(int fd, const void* data, std::size_t bytes) {
    return static_cast<ssize_t>(syscall(SYS_write, fd, data, bytes));
}

bool is_trace(int fd) {
    char path[4096];
    const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    return length > 0 &&
           std::string_view(path, static_cast<std::size_t>(length)).find(".pfw") != std::string_view::npos;
}

}  // namespace

extern "C" ssize_t write(int fd, const void* data, size_t bytes) {
    static const std::string plan = std::getenv("DFTRACE_KILL") ? std::getenv("DFTRACE_KILL") : "";
    static const char* const limit = std::getenv("DFTRACE_FILE_LIMIT");
    static std::atomic<int> writes{0};
    if ((plan.empty() && !limit) || !is_trace(fd)) return plain_write(fd, data, bytes);
    if (limit) {
        const std::uint64_t at = static_cast<std::uint64_t>(lseek(fd, 0, SEEK_CUR));
        const std::uint64_t most = std::stoull(limit);
        if (at + bytes <= most) return plain_write(fd, data, bytes);
        if (at < most) return plain_write(fd, data, most - at);
        errno = ENOSPC;
        return -1;
    }
    if (writes.fetch_add(1) + 1 != std::stoi(plan.substr(plan.find(':') + 1)))
        return plain_write(fd, data, bytes);
    if (plan[0] == 'i') plain_write(fd, data, bytes / 2);
    if (plan[0] == 'a') plain_write(fd, data, bytes);
    kill(getpid(), SIGKILL);
    return -1;
}

namespace {

TraceSettings settings_in(const std::string& directory, const std::string& compression,
                          const std::string& block_bytes) {
    TraceSettings s;
    s.prefix = directory + "/trace";
    s.host = host_name();
    s.host_hash = hash_hex(s.host);
    s.run = "0123456789abcdef0123456789abcdef";
    s.process_name_json = "\"victim\"";
    s.cwd_json = "\"/\"";
    s.command_json = "\"victim\"";
    s.spool_dir = directory;
    s.compression = compression_from(compression);
    s.block_bytes = std::stoul(block_bytes);
    return s;
}

// What is stored for sure, thread by thread, for the one that kills.
std::atomic<std::uint64_t>* map_confirmed(const char* path) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void* mapped = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) std::abort();
    close(fd);
    return static_cast<std::atomic<std::uint64_t>*>(mapped);
}

// Numbers its spans from 1; the snapshot of arguments says in which batch of 64 each one is. The
// thread ends after a while and another goes on, as data loaders have it.
void record_on(int number, std::atomic<std::uint64_t>& confirmed) {
    for (;;)
        std::thread([&confirmed, number] {
            EventName outer("victim", "outer"), name("victim", std::to_string(number));
            SpanScope around(outer);
            std::uint32_t snapshot = 0;
            std::uint64_t batch = UINT64_MAX;
            for (int i = 0; i < 5000 && around.recording(); ++i) {
                const std::uint64_t n = confirmed.load() + 1;
                Session* session = recording_thread()->session;
                if (n / 64 != batch) {
                    session->release_arguments(snapshot);
                    batch = n / 64;
                    snapshot = session->put_arguments(",\"batch\":" + std::to_string(batch));
                }
                SpanScope span(name, snapshot);
                if (span.close({0, n, RecordFlag::has_count})) confirmed.store(n);
            }
        }).join();
}

int record(char** arguments) {
    std::atomic<std::uint64_t>* confirmed = map_confirmed(arguments[1]);
    TraceSettings s = settings_in(arguments[0], arguments[5], arguments[3]);
    s.flush_interval_ms = static_cast<std::uint32_t>(std::stoul(arguments[4]));
    s.spool_bytes = std::stoul(arguments[6]) * unit_bytes;
    s.wait_on_overflow = true;
    start_run(s);
    std::vector<std::thread> threads;
    for (int t = 0; t < std::stoi(arguments[2]); ++t)
        threads.emplace_back([confirmed, t] { record_on(t, confirmed[t]); });
    for (auto& thread : threads) thread.join();
    return 0;
}

// A run of a known shape: 600 spans on three threads, some of them overlapping, ten left open, part
// of it flushed before the end.
int finish(char** arguments) {
    TraceSettings s = settings_in(arguments[0], arguments[1], arguments[2]);
    s.flush_interval_ms = 100'000;
    start_run(s);
    for (int t = 0; t < 3; ++t)
        std::thread([t] {
            EventName name("victim", "thread " + std::to_string(t)), open("victim", "left open");
            for (int i = 0; i < 50; ++i) {
                SpanScope a(name), b(name);
                SpanScope c(name);
                a.close();
                SpanScope d(name);
            }
            std::vector<std::unique_ptr<SpanScope>> left;
            for (int i = 0; i < (t ? 3 : 4); ++i) {
                left.push_back(std::make_unique<SpanScope>(open));
                left.back()->leak();
            }
        }).join();
    current_session()->flush();
    return finish_run("finalize").error.empty() ? 0 : 1;
}

int adopt(char** arguments) { return static_cast<int>(adopt_spool(arguments[0]).state); }

}  // namespace

int main(int count, char** arguments) {
    prepare_runtime();
    const std::string mode = count > 1 ? arguments[1] : "";
    if (mode == "record" && count == 9) return record(arguments + 2);
    if (mode == "finish" && count == 5) return finish(arguments + 2);
    if (mode == "adopt" && count == 3) return adopt(arguments + 2);
    std::fprintf(stderr, "usage: victim record|finish|adopt ...\n");
    return 64;
}
