// A program closes numbers that are not its own, and opens files that get them: ours are found again, and
// the program's stay as they are. A directory that was renamed is found by what is mapped in it.
#include "dftrace/system/held_file.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/reading/spool_view.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/writing/trace_file.hpp"
#include "scratch.hpp"
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

// A page of a file, with or without a name, of which nobody holds a number.
class Mapping {
  public:
    Mapping(const std::string& directory, bool named) {
        HeldFile file;
        const int error =
            named ? file.create_new(directory + "/mapped", O_RDWR) : file.create_nameless(directory, O_RDWR);
        REQUIRE_EQ(error, 0);
        at_ = mmap(nullptr, 1, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
        REQUIRE(at_ != MAP_FAILED);
    }
    ~Mapping() { munmap(at_, 1); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    void* at() const { return at_; }

  private:
    void* at_;
};

bool is_directory(int number, const std::string& path) {
    struct stat held, there;
    REQUIRE(stat(path.c_str(), &there) == 0);
    return fstat(number, &held) == 0 && held.st_ino == there.st_ino && held.st_dev == there.st_dev;
}

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

TEST("a directory is found again after it was renamed and its number closed, before or afterwards") {
    const ScratchDir dir;
    const std::string names[] = {dir.file("first"), dir.file("another (deleted)"), dir.file("line\nbreak"),
                                 dir.file("first")};
    for (const bool named : {false, true}) {
        REQUIRE(mkdir(names[0].c_str(), 0700) == 0);
        const Mapping mapping(names[0], named);
        MappedDirectory directory;
        directory.open(names[0], mapping.at());
        for (std::size_t i = 1; i < 4; ++i) {
            if (i % 2) close(directory.descriptor());
            REQUIRE(std::rename(names[i - 1].c_str(), names[i].c_str()) == 0);
            CHECK_EQ(directory.path_now(), names[i]);
            CHECK_EQ(directory_of_mapping(mapping.at()), names[i]);
            close(directory.descriptor());
            CHECK(is_directory(directory.descriptor(), names[i]));
        }
        unlink((names[3] + "/mapped").c_str());
        REQUIRE(rmdir(names[3].c_str()) == 0);
    }
}

TEST("without a mapping a directory whose number is closed is not found, and a closed one is none") {
    const ScratchDir dir;
    const std::string path = dir.file("first");
    REQUIRE(mkdir(path.c_str(), 0700) == 0);
    auto mapping = std::make_unique<Mapping>(path, true);
    MappedDirectory directory, unmapped;
    directory.open(path, mapping->at());
    unmapped.open(path, nullptr);
    for (MappedDirectory* each : {&directory, &unmapped}) close(each->descriptor());
    CHECK_EQ(unmapped.descriptor(), -1);
    CHECK_EQ(unmapped.path_now(), "");
    CHECK(directory.descriptor() >= 0);
    void* const was_mapped = mapping->at();
    mapping.reset();
    CHECK_EQ(directory_of_mapping(was_mapped), "");
    directory.close();
    CHECK_EQ(directory.descriptor(), -1);
}
