// A trace file never overwrites another, and is only ever longer by whole blocks.
#include "dftrace/writing/trace_file.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "check.hpp"
#include "scratch.hpp"
#include "trace_reader.hpp"

using dftrace::TraceFile;

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

TEST("a link at the place of the trace is not followed") {
    const ScratchDir dir;
    REQUIRE(symlink(dir.file("victim").c_str(), dir.file("t.pfw").c_str()) == 0);
    TraceFile file;
    CHECK_EQ(file.create(dir.file("t"), ".pfw"), 0);
    CHECK_EQ(file.path(), dir.file("t-1.pfw"));
    CHECK(access(dir.file("victim").c_str(), F_OK) != 0);
    std::ofstream(dir.file("victim")) << "precious";
    TraceFile again;
    CHECK(again.resume(dir.file("t.pfw"), 0) != 0);
    CHECK_EQ(file_bytes(dir.file("victim")), "precious");
}

TEST("a directory that is not there is an error") {
    const ScratchDir dir;
    TraceFile file;
    CHECK_EQ(file.create(dir.file("no/t"), ".pfw"), ENOENT);
    CHECK(!file.is_open());
}

TEST("blocks stand one behind the other") {
    const ScratchDir dir;
    TraceFile file;
    REQUIRE(file.create(dir.file("t"), ".pfw") == 0);
    CHECK_EQ(file.append("one\n"), 0);
    CHECK_EQ(file.append(""), 0);
    CHECK_EQ(file.append("two\n"), 0);
    CHECK_EQ(file.bytes(), 8);
    CHECK_EQ(file_bytes(file.path()), "one\ntwo\n");
}

TEST("a block that does not fit leaves nothing of itself behind, and may be tried again") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        signal(SIGXFSZ, SIG_IGN);
        TraceFile file;
        REQUIRE(file.create(dir.file("t"), ".pfw") == 0);
        CHECK_EQ(file.append("first\n"), 0);
        rlimit before{};
        getrlimit(RLIMIT_FSIZE, &before);
        const rlimit limit{10'000, before.rlim_max};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        const std::string large(20'000, 'x');
        CHECK_EQ(file.append(large), EFBIG);
        CHECK_EQ(file.bytes(), 6);
        CHECK_EQ(file_bytes(file.path()), "first\n");
        CHECK_EQ(file.append("second\n"), 0);
        REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
        CHECK_EQ(file.append(large), 0);
        CHECK_EQ(file_bytes(file.path()), "first\nsecond\n" + large);
    }));
}

TEST("going on with a file cuts off what is not known to be whole") {
    const ScratchDir dir;
    std::ofstream(dir.file("t.pfw")) << "whole\ntor";
    TraceFile file;
    CHECK_EQ(file.resume(dir.file("t.pfw"), 6), 0);
    CHECK_EQ(file.bytes(), 6);
    CHECK_EQ(file_bytes(dir.file("t.pfw")), "whole\n");
    CHECK_EQ(file.append("more\n"), 0);
    CHECK_EQ(file_bytes(dir.file("t.pfw")), "whole\nmore\n");
    CHECK_EQ(file.bytes(), 11);
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
