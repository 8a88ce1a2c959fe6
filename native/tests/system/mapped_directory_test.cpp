// A directory is renamed, and its number closed: it is found by what is mapped in it.
#include "dftrace/system/directory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

#include "check.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

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
