// Death at every moment of a trace in parts, and a disk that is full at every byte of it.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/reading/adoption.hpp"
#include "parts_reader.hpp"
#include "scratch.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

constexpr const char* moments[] = {"before:", "inside:", "after:", "create:", "created:"};

struct Shape {
    const char* compression;
    const char* block_bytes;
    const char* max_file_bytes;
};
constexpr Shape shapes[] = {{"none", "8000", "32000"}, {"gzip", "8000", "2600"}};

std::vector<std::string> command(const ScratchDir& dir, const Shape& shape, const char* max_files = "0") {
    return {"finish", dir.path(), shape.compression, shape.block_bytes, shape.max_file_bytes, max_files};
}

void adopt(const ScratchDir& dir) {
    const AdoptionResult result = adopt_spool(dir.only(".spool"), {.directory = dir.path()});
    CHECK_EQ(result.outcome.error, "");
    REQUIRE(result.state == Adopted::finished);
    CHECK(result.damage.empty());
}

// What the victim's run is known to hold, however it came to its end.
void check_whole(const ScratchDir& dir, const Shape& shape) {
    const auto parts = read_parts(dir);
    REQUIRE(!parts.empty());
    // Only the footer itself knows how it came to be written.
    const bool whole = parts.back().text.find("\"ended\":\"finalize\"") != std::string::npos;
    const auto sums = check_parts(parts, whole ? "finalize" : "died");
    CHECK_EQ(sums.at("spans"), 600);
    CHECK_EQ(sums.at("unfinished"), 10);
    for (const Trace& part : parts) CHECK(fs::file_size(part.path) <= std::stoull(shape.max_file_bytes));
    CHECK(dir.files(".spool").empty());
}

// All files of a directory, to be restored at will.
class Snapshot {
  public:
    explicit Snapshot(const ScratchDir& dir) : dir_(dir) {
        for (const std::string& path : dir.files()) files_[path] = file_bytes(path);
    }
    void restore() const {
        for (const std::string& path : dir_.files()) fs::remove(path);
        for (const auto& [path, bytes] : files_) {
            std::FILE* file = std::fopen(path.c_str(), "wb");
            REQUIRE(file != nullptr);
            CHECK_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
            std::fclose(file);
        }
    }

  private:
    const ScratchDir& dir_;
    std::map<std::string, std::string> files_;
};

}  // namespace

TEST("a run in parts that dies at any of its writes is completed exactly once") {
    for (const Shape& shape : shapes)
        for (const std::string moment : moments)
            for (int number = 1;; ++number) {
                const ScratchDir dir;
                const int status = run_victim(command(dir, shape), {moment + std::to_string(number), ""});
                if (!was_killed(status)) {
                    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                    CHECK(number > 3);
                    check_whole(dir, shape);
                    break;
                }
                const int before = check::failures();
                adopt(dir);
                check_whole(dir, shape);
                if (check::failures() != before) CHECK_EQ(moment + std::to_string(number), "whole");
            }
}

TEST("an adoption in parts that dies at any of its writes is completed by the next") {
    for (const Shape& shape : shapes) {
        const ScratchDir dir;
        // Between the footer of a part and the next part.
        REQUIRE(was_killed(run_victim(command(dir, shape), {"create:3", ""})));
        const Snapshot remains(dir);
        adopt(dir);
        const auto lines = span_lines(read_parts(dir));
        for (const std::string moment : moments)
            for (int number = 1;; ++number) {
                remains.restore();
                const int status =
                    run_victim({"adopt", dir.only(".spool")}, {moment + std::to_string(number), ""});
                if (!was_killed(status)) {
                    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                    CHECK(number > 3);
                    break;
                }
                adopt(dir);
                check_whole(dir, shape);
                if (span_lines(read_parts(dir)) != lines)
                    CHECK_EQ(moment + std::to_string(number), "the same lines");
            }
    }
}

TEST("a run that dies while it removes its oldest part is completed in the part it was in") {
    for (const char* max_files : {"1", "2"})
        for (const std::string moment : {"remove:", "removed:"})
            for (int number = 1; number < 4; ++number) {
                const ScratchDir dir;
                const int status =
                    run_victim(command(dir, shapes[0], max_files), {moment + std::to_string(number), ""});
                REQUIRE(was_killed(status));
                adopt(dir);
                const auto parts = read_parts(dir);
                REQUIRE(!parts.empty());
                const std::uint64_t first = moment == "remove:" ? number - 1 : number;
                const auto sums = check_parts(parts, "died", first);
                CHECK_EQ(sums.at("unfinished"), 10);
                CHECK_EQ(sums.at("spans") == 600, first == 0);
            }
}

TEST("a disk that is full at any byte of a trace in parts costs nothing: the spool has it") {
    for (const Shape& shape : shapes) {
        std::uint64_t whole = 0;
        {
            const ScratchDir dir;
            CHECK_EQ(run_victim(command(dir, shape)), 0);
            for (const Trace& part : read_parts(dir)) whole += fs::file_size(part.path);
        }
        for (std::uint64_t limit = 1; limit < whole - 600; limit += whole / 37) {
            const ScratchDir dir;
            const int status = run_victim(command(dir, shape), {"", std::to_string(limit)});
            CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
            adopt(dir);
            check_whole(dir, shape);
        }
    }
}

TEST("a disk that has room again takes what it could not, in parts that are whole") {
    for (const Shape& shape : shapes)
        for (const int failures : {1, 2})
            for (std::uint64_t limit = 1; limit < 40'000; limit += 1733) {
                const ScratchDir dir;
                const int status = run_victim(command(dir, shape),
                                              {"", std::to_string(limit) + ":" + std::to_string(failures)});
                // The last write of all is not tried again.
                if (WIFEXITED(status) && WEXITSTATUS(status) == 1) adopt(dir);
                check_whole(dir, shape);
            }
}
