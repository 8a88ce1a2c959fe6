// A program that is made to be killed: it records, or adopts, until it dies.
//
//   victim flight DIR CONFIRMED THREADS FLIGHT_NS DUMPS UNITS
//   victim dumps DIR COMPRESSION
//   victim finish DIR COMPRESSION BLOCK_BYTES [MAX_FILE_BYTES MAX_FILES]
//   victim adopt SPOOL
//
// Its disk can be made to fail, and to kill it: see faulty_disk.cpp.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dftrace/reading/adoption.hpp"
#include "dftrace/system/host_name.hpp"
#include "dftrace/text/hash.hpp"
#include "span_scope.hpp"

using namespace dftrace;

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
                    snapshot = session->put_arguments(",\"batch\":" + std::to_string(batch)).value_or(0);
                }
                SpanScope span(name, snapshot);
                if (span.close({0, n, RecordFlag::has_count})) confirmed.store(n);
            }
        }).join();
}

// A flight recorder that records in so many threads, and is asked for so many dumps.
int record_in_flight(char** arguments) {
    std::atomic<std::uint64_t>* confirmed = map_confirmed(arguments[1]);
    TraceSettings s = settings_in(arguments[0], "gzip", "100000");
    s.flush_interval_ms = 1;
    s.spool_bytes = std::stoul(arguments[5]) * unit_bytes;
    s.flight_recorder = true;
    s.flight_ns = std::stoull(arguments[3]);
    start_run(s);
    // There is always something to tell, also where no thread runs for longer than is remembered.
    EventName outer("victim", "outer");
    const SpanScope around(outer);
    if (!around.recording()) return 1;
    std::vector<std::thread> threads;
    for (int t = 0; t < std::stoi(arguments[2]); ++t)
        threads.emplace_back([confirmed, t] { record_on(t, confirmed[t]); });
    for (int i = 0; i < std::stoi(arguments[4]); ++i) current_session()->dump("dump " + std::to_string(i));
    for (auto& thread : threads) thread.join();
    return 0;
}

// A flight recorder of a known shape: 100 spans and a dump, three times over, and 100 that nobody asks for
// until the run ends with an exception.
int dump_in_flight(char** arguments) {
    TraceSettings s = settings_in(arguments[0], arguments[1], "4000");
    s.flight_recorder = true;
    start_run(s);
    EventName name("victim", "span");
    for (std::uint64_t n = 0; n < 400; ++n) {
        if (n && n % 100 == 0) current_session()->dump("dump " + std::to_string(n));
        SpanScope span(name);
        span.close({0, n, RecordFlag::has_count});
    }
    return finish_run({"exception", "ValueError"}).error.empty() ? 0 : 1;
}

// A run of a known shape: 600 spans on three threads, some of them overlapping, ten left open, part
// of it flushed before the end.
int finish(int count, char** arguments) {
    TraceSettings s = settings_in(arguments[0], arguments[1], arguments[2]);
    s.flush_interval_ms = 100'000;
    if (count > 3) {
        s.max_file_bytes = std::stoull(arguments[3]);
        s.max_files = static_cast<std::uint32_t>(std::stoul(arguments[4]));
    }
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
    return finish_run({"finalize"}).error.empty() ? 0 : 1;
}

int adopt(char** arguments) { return static_cast<int>(adopt_spool(arguments[0]).state); }

}  // namespace

int main(int count, char** arguments) {
    prepare_runtime();
    set_thread_namer([] { return std::string("worker"); });
    const std::string mode = count > 1 ? arguments[1] : "";
    if (mode == "flight" && count == 8) return record_in_flight(arguments + 2);
    if (mode == "dumps" && count == 4) return dump_in_flight(arguments + 2);
    if (mode == "finish" && (count == 5 || count == 7)) return finish(count - 2, arguments + 2);
    if (mode == "adopt" && count == 3) return adopt(arguments + 2);
    std::fprintf(stderr, "usage: victim flight|dumps|finish|adopt ...\n");
    return 64;
}
