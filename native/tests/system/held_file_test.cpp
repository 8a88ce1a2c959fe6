// A program closes numbers that are not its own, and opens files that get them: ours are found again, and
// the program's stay as they are.
#include "dftrace/system/held_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/reading/spool_view.hpp"
#include "dftrace/writing/trace_file.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

// Every number in use beyond standard error, but those in which only the test is interested.
std::vector<int> numbers_in_use() {
    std::vector<int> numbers;
    for (const auto& entry : fs::directory_iterator("/proc/self/fd"))
        numbers.push_back(std::stoi(entry.path().filename()));
    std::erase_if(numbers, [](int number) { return number < 3 || fcntl(number, F_GETFD) < 0; });
    return numbers;
}

// Puts a file of the program's own at each number that is in use, as a double close followed by open().
class Usurped {
  public:
    explicit Usurped(const std::string& path) : path_(path), numbers_(numbers_in_use()) {
        std::ofstream(path) << "precious";
        for (const int number : numbers_) {
            const int own = open(path.c_str(), O_RDWR);
            dup2(own, number);
            close(own);
        }
    }
    bool unwritten() const { return file_bytes(path_) == "precious"; }
    // Not one of them was closed, locked, moved or written to.
    bool untouched() const {
        const int other = open(path_.c_str(), O_RDWR);
        bool well = flock(other, LOCK_EX | LOCK_NB) == 0 && unwritten();
        for (const int number : numbers_)
            well &= fcntl(number, F_GETFD) >= 0 && lseek(number, 0, SEEK_CUR) == 0;
        close(other);
        return well;
    }
    std::size_t count() const { return numbers_.size(); }

  private:
    std::string path_;
    std::vector<int> numbers_;
};

}  // namespace

TEST("a number is out of the way of what the program opens, and goes back at the end") {
    const ScratchDir dir;
    const std::size_t before = open_descriptors();
    {
        HeldFile file;
        REQUIRE(file.create_new(dir.file("a"), O_RDWR) == 0);
        CHECK(file.descriptor() >= 256);
        CHECK(fcntl(file.descriptor(), F_GETFD) & FD_CLOEXEC);
        CHECK(file.lies_at(dir.file("a").c_str()));
    }
    CHECK_EQ(open_descriptors(), before);
}

TEST("with few numbers to be had, one that is low will do") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        // Room for three more, so that it cannot be that high.
        const rlimit few{static_cast<rlim_t>(numbers_in_use().size() + 6), 4096};
        REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
        HeldFile first, second;
        CHECK_EQ(first.create_new(dir.file("a"), O_RDWR), 0);
        CHECK_EQ(second.create_new(dir.file("b"), O_RDWR), 0);
        CHECK(first.descriptor() >= 0 && second.descriptor() >= 0);
        CHECK(first.descriptor() != second.descriptor());
    }));
}

TEST("a file that the program has closed is found again by its name, unless another lies there") {
    const ScratchDir dir;
    HeldFile file;
    REQUIRE(file.create_new(dir.file("a"), O_RDWR) == 0);
    REQUIRE(close(file.descriptor()) == 0);
    CHECK_EQ(file.descriptor(), -1);
    CHECK_EQ(file.open_again(dir.file("a"), O_RDWR), 0);
    CHECK(file.descriptor() >= 0);
    REQUIRE(close(file.descriptor()) == 0);
    fs::rename(dir.file("a"), dir.file("moved"));
    CHECK_EQ(file.open_again(dir.file("a"), O_RDWR), ENOENT);
    std::ofstream(dir.file("a")) << "somebody else's";
    CHECK_EQ(file.open_again(dir.file("a"), O_RDWR), ESTALE);
    CHECK(!file.lies_at(dir.file("a").c_str()));
    CHECK(file.known());
    CHECK_EQ(file.open_again(dir.file("moved"), O_RDWR), 0);
}

TEST("a trace whose number became another file's goes on in the trace") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        TraceFile file;
        REQUIRE(file.create(dir.file("t"), ".pfw") == 0);
        CHECK_EQ(file.append("one\n"), 0);
        const Usurped usurped(dir.file("checkpoint"));
        CHECK(usurped.count() > 0);
        CHECK_EQ(file.append("two\n"), 0);
        const Usurped again(dir.file("other"));
        // Moved away, it is waited for; another file of its name is not it.
        fs::rename(dir.file("t.pfw"), dir.file("moved.pfw"));
        CHECK_EQ(file.append("three\n"), ENOENT);
        std::ofstream(dir.file("t.pfw")) << "somebody else's, and longer than ours";
        CHECK_EQ(file.append("three\n"), ESTALE);
        fs::rename(dir.file("moved.pfw"), dir.file("t.pfw"));
        CHECK_EQ(file.append("three\n"), 0);
        CHECK_EQ(file_bytes(dir.file("t.pfw")), "one\ntwo\nthree\n");
        const Usurped last(dir.file("last"));
        file.close();
        CHECK(usurped.untouched() && again.untouched() && last.untouched());
    }));
}

TEST("a piece of a block that was being written when the file was closed does not stay") {
    const ScratchDir dir;
    TraceFile file;
    REQUIRE(file.create(dir.file("t"), ".pfw") == 0);
    CHECK_EQ(file.append("one\n"), 0);
    std::ofstream(dir.file("t.pfw"), std::ios::app) << "tw";
    REQUIRE(close(file.descriptor()) == 0);
    CHECK_EQ(file.append("two\n"), 0);
    CHECK_EQ(file_bytes(dir.file("t.pfw")), "one\ntwo\n");
}

TEST("a spool grows, keeps its lock and goes away, whatever its number became") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        Spool spool(dir.file("a.spool"), 64 * unit_bytes);
        std::vector<std::unique_ptr<Usurped>> files;
        const auto usurp = [&] {
            files.push_back(std::make_unique<Usurped>(dir.file("file" + std::to_string(files.size()))));
        };
        usurp();
        SpoolView somebody(dir.file("a.spool"));
        CHECK(!somebody.lock());  // the mapping holds it
        CHECK(spool.acquire(UnitKind::ring, 1) != nullptr);
        CHECK(!somebody.lock());
        CHECK_EQ(fs::file_size(dir.file("a.spool")), 2 * unit_bytes);
        usurp();
        // Where it cannot be found again it counts as full.
        fs::rename(dir.file("a.spool"), dir.file("moved"));
        CHECK(spool.acquire(UnitKind::ring, 1) == nullptr);
        CHECK_EQ(spool.refused(), ENOENT);
        CHECK(spool.removed());
        std::ofstream(dir.file("a.spool")) << "somebody else's";
        CHECK(spool.acquire(UnitKind::ring, 1) == nullptr);
        spool.unlink();
        CHECK_EQ(file_bytes(dir.file("a.spool")), "somebody else's");
        fs::rename(dir.file("moved"), dir.file("a.spool"));
        CHECK(spool.acquire(UnitKind::ring, 1) != nullptr);
        usurp();
        spool.unlink();
        CHECK(!fs::exists(dir.file("a.spool")));
        spool.abandon();
        for (const auto& file : files) CHECK(file->untouched());
    }));
}

TEST("who reads a spool does nothing to the files that got its numbers") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        Spool spool(dir.file("a.spool"), 8 * unit_bytes);
        std::unique_ptr<Usurped> usurped;
        {
            SpoolView view(dir.file("a.spool"));
            const SpoolCopy copy(dir.file("a.spool"));
            usurped = std::make_unique<Usurped>(dir.file("checkpoint"));
            CHECK(!view.lock());
            CHECK(!view.removed());
            CHECK(copy.held());
            static_cast<void>(copy.units());
            CHECK(usurped->untouched());
        }
        CHECK(usurped->untouched());
    }));
}

TEST("a run loses nothing to a program that closes all numbers, again and again") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        TraceSettings settings = dir.settings();
        settings.compression = Compression::none;
        settings.max_file_bytes = 200'000;
        settings.flush_interval_ms = 100'000;  // after `flush` the drain thread rests
        start_run(settings);
        EventName name("life", "span");
        std::vector<std::unique_ptr<Usurped>> files;
        std::uint64_t spans = 0;
        for (int round = 1; round <= 12; ++round) {
            // More each time, so that the spool has to grow.
            for (int i = 0; i < 500 * round; ++i, ++spans) SpanScope span(name);
            CHECK_EQ(current_session()->flush(), 0);
            if (round % 2)
                files.push_back(std::make_unique<Usurped>(dir.file("file" + std::to_string(round))));
            else
                for (const int number : numbers_in_use()) close(number);
        }
        const Outcome outcome = finish_run({"finalize"});
        CHECK_EQ(outcome.error, "");
        CHECK_EQ(outcome.spool_refusal, "");
        CHECK_EQ(outcome.losses.dropped, 0);
        CHECK_EQ(outcome.events, spans);
        for (const auto& file : files) CHECK(file->unwritten());
        CHECK(dir.files(".spool").empty());
        CHECK(dir.files(".spool-at").empty());
    }));
}
