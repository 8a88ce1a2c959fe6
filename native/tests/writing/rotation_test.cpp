// A trace in parts: each is whole by itself, none is too large, and together they are the run.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dftrace/writing/trace_parts.hpp"
#include "parts_reader.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

TraceSettings in_parts(const ScratchDir& dir, Compression compression, std::size_t block_bytes,
                       std::uint64_t max_file_bytes, std::uint32_t max_files = 0) {
    TraceSettings settings = dir.settings();
    settings.compression = compression;
    settings.block_bytes = block_bytes;
    settings.max_file_bytes = max_file_bytes;
    settings.max_files = max_files;
    settings.wait_on_overflow = true;
    return settings;
}

void record(EventName& name, std::uint64_t spans) {
    for (std::uint64_t i = 0; i < spans; ++i) SpanScope span(name);
}

std::uint64_t size_of(const Trace& part) { return fs::file_size(part.path); }

}  // namespace

TEST("each part is a trace of its own, and together they are the run") {
    for (const Compression compression : {Compression::none, Compression::gzip, Compression::zstd}) {
        const ScratchDir dir;
        const std::uint64_t limit = compression == Compression::none ? 60'000 : 9'000;
        set_thread_namer([] { return std::string("worker"); });
        start_run(in_parts(dir, compression, 8'000, limit));
        std::vector<std::thread> threads;
        for (int t = 0; t < 3; ++t)
            threads.emplace_back([t] {
                EventName name("rotation", "thread " + std::to_string(t));
                for (int i = 0; i < 1000; ++i) {
                    SpanScope outer(name), inner(name);
                    record_now(i % 2 ? Kind::instant : Kind::counter, name, ",\"i\":" + std::to_string(i));
                    outer.close();  // before the inner one: on a track of its own
                }
            });
        for (auto& thread : threads) thread.join();
        EventName open("rotation", "open");
        SpanScope left(open);
        left.leak();
        const Outcome outcome = finish_run({"finalize"});
        set_thread_namer(nullptr);
        CHECK_EQ(outcome.error, "");

        const auto parts = read_parts(dir);
        CHECK(parts.size() > 5);
        CHECK_EQ(outcome.trace_path, parts.back().path);
        const auto sums = check_parts(parts, "finalize");
        CHECK_EQ(sums.at("spans"), 6000);
        CHECK_EQ(sums.at("instants"), 1500);
        CHECK_EQ(sums.at("counters"), 1500);
        CHECK_EQ(sums.at("unfinished"), 1);
        CHECK_EQ(sums.at("events"), outcome.events);
        CHECK(std::all_of(parts.begin(), parts.end(), [&](const Trace& p) { return size_of(p) <= limit; }));
        CHECK(dir.files(".spool").empty() && dir.files(".spool-at").empty());
    }
}

TEST("what is in the files is told as it was at one moment, while more is written") {
    const ScratchDir dir;
    const auto header = std::make_unique<SpoolHeader>();
    TraceParts parts(*header, dir.file("t"), ".pfw", 0600);
    std::atomic<bool> done = false;
    std::uint64_t torn = 0;
    // As `stats` of a run asks, while its drain thread writes.
    std::thread asking([&] {
        while (!done.load(std::memory_order_relaxed)) {
            const Written now = parts.written();
            for (const std::uint64_t count : now.lines) torn += count != now.file_bytes;
        }
    });
    WriteFacts facts;
    int errors = 0;
    for (std::uint64_t block = 0; block < scaled(100'000); ++block) {
        for (std::uint64_t& count : facts.lines) ++count;
        errors += parts.append("x", 1, facts) != 0;
    }
    done = true;
    asking.join();
    CHECK_EQ(errors, 0);
    CHECK_EQ(torn, 0);
}

TEST("without a limit, or below it, there is one file, which does not speak of parts") {
    for (const std::uint64_t limit : {0u, 1u << 20}) {
        const ScratchDir dir;
        start_run(in_parts(dir, Compression::gzip, 500, limit));
        EventName name("rotation", "few");
        record(name, 1000);
        finish_run({"finalize"});
        const Trace trace = read_trace(dir.only(".pfw.gz"));
        check_complete(trace, "finalize");
        CHECK(trace.text.find("\"part\"") == std::string::npos);
    }
}

TEST("what went wrong is told by the part in which it did, and once") {
    const ScratchDir dir;
    start_run(in_parts(dir, Compression::none, 2'000, 20'000));
    EventName name("rotation", "losses");
    std::uint64_t dropped = 0, stops = 0;
    for (int i = 0; i < 20; ++i) {
        record(name, 40);
        SpoolHeader& header = current_session()->header();
        header.dropped += static_cast<std::uint64_t>(i);
        header.unmatched_stops += 1;
        dropped += static_cast<std::uint64_t>(i);
        ++stops;
        CHECK_EQ(current_session()->flush(), 0);
    }
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.losses.dropped, dropped);
    const auto parts = read_parts(dir);
    CHECK(parts.size() > 4);
    const auto sums = check_parts(parts, "finalize");
    CHECK_EQ(sums.at("dropped"), dropped);
    CHECK_EQ(sums.at("unmatched_stops"), stops);
    CHECK_EQ(sums.at("drain_cpu_us"), outcome.losses.drain_cpu_us);
}

TEST("only the last parts are kept, and others' files are not touched") {
    for (const std::uint32_t keep : {1u, 2u, 5u}) {
        const ScratchDir dir;
        const TraceSettings settings = in_parts(dir, Compression::none, 2'000, 10'000, keep);
        const std::string stem = file_stem(settings, static_cast<std::uint32_t>(getpid()));
        const std::string others = stem + ".part2.pfw";  // of a process that had our number
        fs::create_symlink("nowhere", others);
        start_run(settings);
        EventName name("rotation", "kept");
        std::size_t most = 0;
        for (int i = 0; i < 60; ++i) {
            record(name, 10);
            CHECK_EQ(current_session()->flush(), 0);
            most = std::max(most, dir.files(".pfw").size() - 1);
        }
        finish_run({"finalize"});
        CHECK_EQ(most, keep);
        CHECK(fs::is_symlink(others));
        fs::remove(others);
        const auto parts = read_parts(dir);
        REQUIRE_EQ(parts.size(), keep);
        const std::string last = parts.back().path;
        const std::uint64_t number = std::stoull(last.substr(last.find(".part") + 5));
        CHECK(number > 5);
        check_parts(parts, "finalize", number + 1 - keep);
    }
}

TEST("a block that is larger than a part is a part of its own") {
    const ScratchDir dir;
    start_run(in_parts(dir, Compression::none, 20'000, 3'000));
    EventName name("rotation", "large");
    for (int i = 0; i < 5; ++i) {
        record_now(Kind::instant, name, ",\"text\":\"" + std::string(30'000, 'x') + "\"");
        CHECK_EQ(current_session()->flush(), 0);
    }
    finish_run({"finalize"});
    const auto parts = read_parts(dir);
    CHECK_EQ(parts.size(), 5);
    CHECK_EQ(check_parts(parts, "finalize").at("instants"), 5);
}
