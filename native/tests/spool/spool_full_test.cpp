// A file system that is full is a refusal, never a SIGBUS.
#include <sys/mount.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>

#include "check.hpp"
#include "dftrace/spool/spool.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

// A tmpfs of some units, for as long as the object lives.
class SmallDisk {
  public:
    SmallDisk(const ScratchDir& dir, std::size_t bytes) : path_(dir.file("disk")) {
        mkdir(path_.c_str(), 0700);
        const std::string size = "size=" + std::to_string(bytes);
        if (mount("none", path_.c_str(), "tmpfs", 0, size.c_str()) != 0)
            SKIP(std::string("a small file system cannot be mounted: ") + std::strerror(errno));
    }
    ~SmallDisk() { umount2(path_.c_str(), MNT_DETACH); }
    SmallDisk(const SmallDisk&) = delete;
    SmallDisk& operator=(const SmallDisk&) = delete;
    const std::string& path() const noexcept { return path_; }
    void fill() const {
        std::ofstream file(path_ + "/ballast", std::ios::binary);
        const std::string piece(4096, 'x');
        while (file.write(piece.data(), 4096) && file.flush()) {
        }
    }
    void clear() const { unlink((path_ + "/ballast").c_str()); }

  private:
    std::string path_;
};

}  // namespace

TEST("a spool on a full file system hands out what there is, all of it writable") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 20 * unit_bytes);
    Spool spool(disk.path() + "/a.spool", 1000 * unit_bytes);
    int units = 0;
    while (UnitHeader* unit = spool.acquire(UnitKind::ring, 1)) {
        std::memset(records_of(unit), 0x77, unit->capacity * sizeof(Record));
        ++units;
    }
    CHECK_EQ(units, 19);
}

TEST(
    "room that is prepared on a full file system is no refusal, holds what is stored, and leaves others "
    "theirs") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 20 * unit_bytes);
    Spool spool(disk.path() + "/a.spool", 1000 * unit_bytes);
    spool.prepare(500);
    CHECK_EQ(spool.refused(), 0);
    spool.give_back_prepared();
    disk.fill();
    struct stat ballast {};
    REQUIRE(stat((disk.path() + "/ballast").c_str(), &ballast) == 0);
    CHECK_EQ(ballast.st_size, 19 * unit_bytes);
    disk.clear();
    spool.prepare(10);
    disk.fill();
    int units = 0;
    while (UnitHeader* unit = spool.acquire(UnitKind::ring, 1)) {
        std::memset(records_of(unit), 0x77, unit->capacity * sizeof(Record));
        ++units;
    }
    CHECK_EQ(units, 10);
    CHECK_EQ(spool.refused(), ENOSPC);
}

TEST("a spool that does not fit at all is refused and leaves no file") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 4 * unit_bytes);
    disk.fill();
    CHECK_THROWS(std::system_error, Spool(disk.path() + "/a.spool", 1000 * unit_bytes));
    CHECK(access((disk.path() + "/a.spool").c_str(), F_OK) != 0);
}

TEST("a run whose spool's disk is full loses some records, counts them, and ends well") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 8 * unit_bytes);
    TraceSettings settings = dir.settings();
    settings.spool_dir = disk.path();
    settings.flush_interval_ms = 10'000;
    start_run(settings);
    EventName name("disk", "full");
    constexpr std::uint64_t spans = 30'000;
    for (std::uint64_t i = 0; i < spans; ++i) SpanScope span(name);
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.error, "");
    const Trace trace = read_trace(outcome.trace_path);
    const Footer footer = check_complete(trace, "finalize");
    CHECK(footer.number("dropped") > 0);
    CHECK_EQ(footer.number("spans") + footer.number("dropped"), spans);
}

TEST("a trace whose disk is full waits in the spool and goes on when there is room") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 1 << 20);
    TraceSettings settings = dir.settings();
    settings.prefix = disk.path() + "/trace";
    settings.compression = Compression::none;
    start_run(settings);
    EventName name("disk", "full");
    { SpanScope span(name); }
    Session* session = current_session();
    REQUIRE(session != nullptr);
    CHECK_EQ(session->flush(), 0);
    disk.fill();
    for (int i = 0; i < 2000; ++i) SpanScope span(name);
    CHECK_EQ(session->flush(), ENOSPC);
    CHECK_EQ(session->flush(), ENOSPC);
    disk.clear();
    CHECK_EQ(session->flush(), 0);
    for (int i = 0; i < 500; ++i) SpanScope span(name);
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.error, "");
    const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
    CHECK_EQ(footer.number("spans"), 2501);
    CHECK_EQ(footer.number("dropped"), 0);
}

TEST("what a thread loses for which a full spool has no place is counted once") {
    const ScratchDir dir;
    const SmallDisk disk(dir, 1 << 20);
    TraceSettings settings = dir.settings();
    settings.prefix = disk.path() + "/trace";
    settings.compression = Compression::none;
    settings.spool_bytes = 6 * unit_bytes;
    start_run(settings);
    EventName name("disk", "full");
    std::uint64_t tried = 1, stored = SpanScope(name).close();
    CHECK_EQ(current_session()->flush(), 0);
    disk.fill();
    for (bool kept = true; kept; ++tried) stored += kept = SpanScope(name).close();
    std::uint64_t stored_late = 0;
    std::thread([&] {
        for (int i = 0; i < 100; ++i) {
            stored_late += SpanScope(name).close();
            stored_late += record_now(Kind::instant, name);
        }
    }).join();
    CHECK_EQ(stored_late, 0);
    disk.clear();
    const Outcome outcome = finish_run({"finalize"});
    CHECK_EQ(outcome.error, "");
    const Footer footer = check_complete(read_trace(outcome.trace_path), "finalize");
    CHECK_EQ(footer.number("spans"), stored);
    CHECK_EQ(footer.number("dropped"), tried - stored + 200);
}
