// The writer's marks in the spool: true at every moment, for whoever reads them after a death. A trace file
// never overwrites another, and is only ever longer by whole blocks.
#include "dftrace/writing/trace_writer.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "dftrace/writing/trace_parts.hpp"
#include "parts_reader.hpp"
#include "scratch.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

// Files of so many bytes at most for what `body` does.
void with_file_limit(rlim_t bytes, const std::function<void()>& body) {
    signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit limit{bytes, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    body();
    REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
}

// A writer on a spool, with one name and one thread.
struct Desk {
    explicit Desk(const std::string& prefix = "trace", std::size_t block_bytes = 1 << 20,
                  std::uint64_t max_file_bytes = 0)
        : settings(settings_in(dir, prefix, block_bytes)) {
        settings.max_file_bytes = max_file_bytes;
        track.tid = 7;
        UnitHeader* names = spool.acquire(UnitKind::names, 0);
        const std::string_view name = R"("name":"n","cat":"c")";
        auto* blob = reinterpret_cast<BlobHeader*>(blobs_of(names));
        *blob = {1, static_cast<std::uint32_t>(name.size()), BlobKind::name, 0};
        name.copy(reinterpret_cast<char*>(blob + 1), name.size());
        names->committed.store(40);
        tables.read(names);
    }
    static TraceSettings settings_in(const ScratchDir& dir, const std::string& prefix,
                                     std::size_t block_bytes) {
        TraceSettings settings = dir.settings();
        settings.prefix = dir.file(prefix);
        settings.compression = Compression::none;
        settings.block_bytes = block_bytes;
        return settings;
    }
    UnitHeader* filled(std::uint32_t records) {
        UnitHeader* unit = spool.acquire(UnitKind::ring, 1);
        for (std::uint32_t i = 0; i < records; ++i) {
            Record& r = records_of(unit)[i];
            r = Record{};
            r.start = 10 * ++made;
            r.end = r.start + 5;
            r.id = made;
            r.node = 1;
            r.level = 1;
            r.kind = Kind::span;
        }
        unit->committed.store(records);
        return unit;
    }
    bool write(UnitHeader* unit, std::uint32_t& scan, std::uint32_t limit) {
        return 0 == writer.records(unit, scan, limit, track, tables, clock);
    }
    const WriteMark& mark() { return spool.header().marks[spool.header().write_number.load() % 2]; }
    std::uint64_t file_size() const {
        struct stat info {};
        return stat(writer.path().c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
    }

    ScratchDir dir;
    TraceSettings settings;
    Spool spool{dir.file("a.spool"), 64 * unit_bytes};
    BlobTables tables;
    ClockMap clock = ClockMap::from_segments({{0, 1'000'000, std::uint64_t{1} << 32}});
    Track track;
    std::uint64_t made = 0;
    TraceWriter writer{settings, spool.header(), 1};
};

}  // namespace

TEST("a unit's records are told as written when they are, not before") {
    Desk desk;
    UnitHeader* unit = desk.filled(100);
    std::uint32_t scan = 0;
    CHECK(desk.write(unit, scan, 60));
    CHECK_EQ(scan, 60);
    CHECK_EQ(unit->consumed, 0);
    CHECK(!desk.writer.blocks().empty());
    CHECK_EQ(desk.writer.flush(), 0);
    CHECK_EQ(unit->consumed, 60);
    CHECK_EQ(desk.mark().lines[1], 60);
    CHECK_EQ(desk.mark().file_bytes, desk.file_size());
    CHECK(desk.write(unit, scan, 100));
    CHECK_EQ(unit->consumed, 60);
    CHECK_EQ(desk.writer.flush(), 0);
    CHECK_EQ(unit->consumed, 100);
    CHECK_EQ(desk.spool.header().write_number.load(), 2);
}

TEST("marks and file agree after every block") {
    Desk desk("trace", 700);
    std::vector<std::uint32_t> durable;
    UnitHeader* unit = desk.filled(500);
    desk.writer.blocks().on_durable = [&](UnitHeader* seen, std::uint32_t scan) {
        CHECK(seen == unit);
        CHECK_EQ(unit->consumed, scan);
        CHECK_EQ(unit->pending, scan);
        CHECK_EQ(unit->pending_write, desk.spool.header().write_number.load());
        CHECK_EQ(desk.mark().file_bytes, desk.file_size());
        CHECK_EQ(desk.mark().plain_bytes, desk.file_size());
        CHECK_EQ(desk.mark().lines[1], scan);
        CHECK(desk.mark().stage == TraceStage::records);
        durable.push_back(scan);
    };
    std::uint32_t scan = 0;
    CHECK(desk.write(unit, scan, 500));
    CHECK_EQ(desk.writer.flush(), 0);
    CHECK(durable.size() > 50);
    CHECK_EQ(durable.back(), 500);
}

TEST("a unit that was written to its end can become another's at once") {
    Desk desk("trace", 1);  // every record is a block, the unit's last one too
    UnitHeader* unit = desk.filled(5);
    std::uint32_t scan = 0;
    CHECK(desk.write(unit, scan, 5));
    CHECK_EQ(unit->consumed, 5);
    desk.spool.release(unit);
    UnitHeader* again = desk.filled(3);
    REQUIRE(again == unit);
    std::uint32_t other_scan = 0;
    CHECK(desk.write(desk.filled(2), other_scan, 2));
    CHECK_EQ(desk.writer.flush(), 0);
    CHECK_EQ(again->consumed, 0);
    CHECK_EQ(again->pending_write, 0);
}

TEST("a write that fails changes nothing and is made good later") {
    Desk desk("later/trace");
    UnitHeader* unit = desk.filled(10);
    std::uint32_t scan = 0;
    CHECK(desk.write(unit, scan, 10));
    for (int i = 0; i < 3; ++i) {
        CHECK_EQ(desk.writer.flush(), ENOENT);
        CHECK_EQ(unit->consumed, 0);
        CHECK_EQ(desk.spool.header().write_number.load(), 0);
    }
    UnitHeader* more = desk.filled(5);
    std::uint32_t more_scan = 0;
    CHECK(!desk.write(more, more_scan, 5));
    CHECK_EQ(more_scan, 0);
    REQUIRE(mkdir(desk.dir.file("later").c_str(), 0700) == 0);
    CHECK(desk.write(more, more_scan, 5));
    CHECK_EQ(desk.writer.finish({"finalize"}), 0);
    CHECK_EQ(unit->consumed, 10);
    CHECK_EQ(more->consumed, 5);
    const Trace trace = read_trace(desk.writer.path());
    CHECK_EQ(check_complete(trace, "finalize").number("spans"), 15);
}

TEST("the stages of an end are told with the writes that hold them") {
    Desk desk;
    UnitHeader* unit = desk.filled(10);
    std::uint32_t scan = 0;
    CHECK(desk.write(unit, scan, 10));
    CHECK_EQ(desk.writer.end_records(), 0);
    CHECK(desk.mark().stage == TraceStage::records);
    const OpenSpan open{99, 5, 0, 1, 0, 0, 1, 1};
    desk.writer.unfinished(open, desk.track, desk.tables, desk.clock);
    CHECK_EQ(desk.writer.flush(), 0);
    CHECK(desk.mark().stage == TraceStage::unfinished);
    CHECK_EQ(desk.mark().lines[0], 1);
    CHECK_EQ(desk.writer.finish({"finalize"}), 0);
    CHECK(desk.mark().stage == TraceStage::complete);
    check_complete(read_trace(desk.writer.path()), "finalize");
}

TEST("a part that cannot be begun is tried again, and there is no empty one") {
    Desk desk("trace", 1 << 20, 3'000);
    UnitHeader* first = desk.filled(100);
    UnitHeader* second = desk.filled(300);
    CHECK(in_child([&] {
        std::uint32_t scan = 0, second_scan = 0;
        CHECK(desk.write(first, scan, 100));
        CHECK_EQ(desk.writer.flush(), 0);
        // Room for the first part's footer, not for the second part's only block.
        with_file_limit(desk.file_size() + 3'000, [&] {
            CHECK(desk.write(second, second_scan, 300));
            for (int i = 0; i < 3; ++i) {
                CHECK_EQ(desk.writer.flush(), EFBIG);
                CHECK_EQ(second->consumed, 0);
                CHECK_EQ(desk.mark().closed, 1);
            }
        });
        CHECK_EQ(desk.writer.finish({"finalize"}), 0);
    }));
    const auto parts = read_parts(desk.dir);
    CHECK_EQ(parts.size(), 2);
    CHECK_EQ(check_parts(parts, "finalize").at("spans"), 400);
}

TEST("a file that is removed before its first block has landed is made again, with one opening") {
    for (const bool later_part : {false, true}) {
        Desk desk("trace", 1 << 20, later_part ? 3'000 : 0);
        desk.settings.max_files = later_part ? 2 : 0;
        UnitHeader* first = desk.filled(100);
        UnitHeader* second = desk.filled(300);
        UnitHeader* third = desk.filled(100);
        CHECK(in_child([&] {
            std::uint32_t scan = 0, second_scan = 0, third_scan = 0;
            if (later_part) {
                CHECK(desk.write(first, scan, 100));
                CHECK_EQ(desk.writer.flush(), 0);
            }
            with_file_limit(later_part ? desk.file_size() + 500 : 0, [&] {
                CHECK(desk.write(second, second_scan, 300));
                for (int i = 0; i < 2; ++i) {
                    CHECK_EQ(desk.writer.flush(), EFBIG);
                    CHECK_EQ(desk.file_size(), 0);
                    CHECK_EQ(unlink(desk.writer.path().c_str()), 0);
                }
            });
            CHECK_EQ(desk.writer.flush(), 0);
            CHECK_EQ(desk.mark().plain_bytes, desk.file_size());
            CHECK(desk.write(third, third_scan, 100));
            CHECK_EQ(desk.writer.finish({"finalize"}), 0);
            CHECK_EQ(desk.writer.blocks().spoilt_lines(), 0);
        }));
        const auto parts = read_parts(desk.dir);
        CHECK_EQ(parts.size(), later_part ? 2 : 1);
        CHECK_EQ(check_parts(parts, "finalize", later_part ? 1 : 0).at("spans"), 400);
        for (const Trace& part : parts)
            CHECK_EQ(part.text.find("process_name"), part.text.rfind("process_name"));
    }
}

TEST("an empty file that is found, and then removed, is as one that was never made") {
    Desk desk;
    const std::string path = file_stem(desk.settings, desk.spool.header().pid) + ".pfw";
    REQUIRE(close(open(path.c_str(), O_WRONLY | O_CREAT, 0600)) == 0);
    desk.spool.header().trace_paths[0].set(0, path);
    CHECK_EQ(desk.writer.resume(), 0);
    CHECK_EQ(unlink(path.c_str()), 0);
    CHECK_EQ(desk.writer.finish({"died"}), 0);
    CHECK(desk.dir.files(".pfw").empty());
}

TEST("somebody else's file that has the name of one that failed is not taken for ours") {
    Desk desk;
    UnitHeader* unit = desk.filled(10);
    CHECK(in_child([&] {
        std::uint32_t scan = 0;
        CHECK(desk.write(unit, scan, 10));
        with_file_limit(0, [&] { CHECK_EQ(desk.writer.flush(), EFBIG); });
        const std::string path = desk.writer.path();
        CHECK_EQ(unlink(path.c_str()), 0);
        std::ofstream(path) << "precious";
        // As if it died when it has named that file and not yet found that it is there.
        desk.writer.parts().keeps_marks_by([&](const void* mark, std::size_t) {
            return mark == &desk.spool.header().trace_paths[0] ? EIO : 0;
        });
        CHECK_EQ(desk.writer.flush(), EIO);
        TraceWriter next(desk.settings, desk.spool.header(), 1);
        CHECK_EQ(next.resume(), 0);
        CHECK_EQ(file_bytes(path), "precious");
    }));
}

TEST("records of no known kind are passed over") {
    Desk desk;
    UnitHeader* unit = desk.filled(6);
    const std::uint8_t kinds[] = {0, 8, 77, 255};
    for (std::size_t i = 0; i < std::size(kinds); ++i)
        records_of(unit)[i + 1].kind = static_cast<Kind>(kinds[i]);
    std::uint32_t scan = 0;
    CHECK(desk.write(unit, scan, 6));
    CHECK_EQ(desk.writer.finish({"finalize"}), 0);
    CHECK_EQ(check_complete(read_trace(desk.writer.path()), "finalize").number("spans"), 2);
}

TEST("a block that is larger than a part is a part of its own") {
    Desk desk("trace", 1 << 20, 3'000);
    for (int i = 0; i < 5; ++i) {
        std::uint32_t scan = 0;
        CHECK(desk.write(desk.filled(300), scan, 300));
        CHECK_EQ(desk.writer.flush(), 0);
    }
    CHECK_EQ(desk.writer.finish({"finalize"}), 0);
    const auto parts = read_parts(desk.dir);
    CHECK_EQ(parts.size(), 5);
    CHECK_EQ(check_parts(parts, "finalize").at("spans"), 1500);
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

TEST("a name that is taken gets a number") {
    const ScratchDir dir;
    umask(0);
    TraceFile first, second, third;
    CHECK_EQ(first.create(dir.file("t"), ".pfw.gz"), 0);
    CHECK_EQ(second.create(dir.file("t"), ".pfw.gz"), 0);
    std::ofstream(dir.file("t-2.pfw.gz")) << "somebody else's";
    CHECK_EQ(third.create(dir.file("t"), ".pfw.gz"), 0);
    umask(022);
    CHECK_EQ(first.path(), dir.file("t.pfw.gz"));
    CHECK_EQ(second.path(), dir.file("t-1.pfw.gz"));
    CHECK_EQ(third.path(), dir.file("t-3.pfw.gz"));
    CHECK_EQ(file_bytes(dir.file("t-2.pfw.gz")), "somebody else's");
    struct stat info {};
    REQUIRE(stat(first.path().c_str(), &info) == 0);
    CHECK_EQ(info.st_mode & 07777u, 0600u);
}

TEST("a block that does not fit leaves nothing of itself behind, and may be tried again") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        TraceFile file;
        REQUIRE(file.create(dir.file("t"), ".pfw") == 0);
        CHECK_EQ(file.append("first\n"), 0);
        const std::string large(20'000, 'x');
        with_file_limit(10'000, [&] {
            CHECK_EQ(file.append(large), EFBIG);
            CHECK_EQ(file.bytes(), 6);
            CHECK_EQ(file_bytes(file.path()), "first\n");
            CHECK_EQ(file.append("second\n"), 0);
        });
        CHECK_EQ(file.append(large), 0);
        CHECK_EQ(file_bytes(file.path()), "first\nsecond\n" + large);
    }));
}

TEST("a tail stands at the end until the next write, and whoever goes on gets it") {
    const ScratchDir dir;
    TraceFile file;
    CHECK_EQ(file.create(dir.file("t"), ".pfw"), 0);
    CHECK_EQ(file.append("one\n"), 0);
    CHECK_EQ(file.put_tail("tail\n"), 0);
    CHECK_EQ(file.put_tail("other tail\n"), 0);
    CHECK_EQ(file.bytes(), 4);
    CHECK_EQ(file_bytes(file.path()), "one\nother tail\n");
    TraceFile again;
    std::string tail = "?";
    CHECK_EQ(again.resume(file.path(), 4, {}, &tail), 0);
    CHECK_EQ(tail, "other tail\n");
    CHECK_EQ(file_bytes(file.path()), "one\n");
    CHECK_EQ(again.append("two\n"), 0);
    CHECK_EQ(again.put_tail("tail\n"), 0);
    CHECK_EQ(again.append("three\n"), 0);
    CHECK_EQ(file_bytes(file.path()), "one\ntwo\nthree\n");
}

TEST("a file that is gone, is none, or is shorter than it should be is not gone on with") {
    const ScratchDir dir;
    TraceFile missing, directory, shorter;
    CHECK_EQ(missing.resume(dir.file("t.pfw"), 0), ENOENT);
    CHECK(directory.resume(dir.path(), 0) != 0);
    std::ofstream(dir.file("short.pfw")) << "four";
    CHECK(shorter.resume(dir.file("short.pfw"), 1000) != 0);
    CHECK_EQ(file_bytes(dir.file("short.pfw")), "four");
}
