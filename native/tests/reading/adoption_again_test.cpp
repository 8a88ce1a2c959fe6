// Death at every single write: of a run that ends, and of the one that adopts it; and a disk that is full at
// every byte.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
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

// The last two only where parts are made all the time.
const std::vector<std::string> moments{"before:", "inside:", "after:", "create:", "created:"};

struct Shape {
    std::string compression;
    std::string block_bytes;
    std::string max_file_bytes = "0";
    std::size_t moments = 3;

    std::vector<std::string> command(const ScratchDir& dir, const char* max_files = "0") const {
        return {"finish", dir.path(), compression, block_bytes, max_file_bytes, max_files};
    }
};
const Shape whole_files[] = {{"none", "20000"}, {"gzip", "20000"}};
const Shape in_parts[] = {{"none", "8000", "32000", 5}, {"gzip", "8000", "2600", 5}};

// What the victim's run is known to hold, as one trace or as several, however it came to its end.
void check_whole(const ScratchDir& dir, const Shape& shape) {
    const auto parts = read_parts(dir);
    REQUIRE(!parts.empty());
    // Only the footer itself knows how it came to be written.
    const bool whole = parts.back().text.find("\"ended\":\"finalize\"") != std::string::npos;
    const auto sums = check_parts(parts, whole ? "finalize" : "died");
    CHECK_EQ(sums.at("spans"), 600);
    CHECK_EQ(sums.at("unfinished"), 10);
    if (const std::uint64_t most = std::stoull(shape.max_file_bytes))
        for (const Trace& part : parts) CHECK(fs::file_size(part.path) <= most);
    else
        CHECK_EQ(parts.size(), 1);
    CHECK(dir.files(".spool").empty());
}

void check_shape(const Trace& trace, std::string_view ended) {
    const Footer footer = check_complete(trace, ended);
    CHECK_EQ(footer.number("spans"), 600);
    CHECK_EQ(footer.number("unfinished"), 10);
}

void adopt(const ScratchDir& dir) {
    const AdoptionResult result = adopt_spool(dir.only(".spool"), {.directory = dir.path()});
    CHECK_EQ(result.outcome.error, "");
    REQUIRE(result.state == Adopted::finished);
    CHECK(result.damage.empty());
}

// A spool and a trace as a death left them, to be restored at will.
class Remains {
  public:
    explicit Remains(const ScratchDir& dir) : dir_(dir), spool_path_(dir.only(".spool")) {
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
    const std::string& spool_path() const { return spool_path_; }
    std::uint64_t trace_bytes() const {
        for (const auto& [path, bytes] : files_)
            if (path != spool_path_) return bytes.size();
        return 0;
    }

  private:
    const ScratchDir& dir_;
    std::string spool_path_;
    std::map<std::string, std::string> files_;
};

// Has the victim die at each write in turn, at one of `stride` behind the third, until it lives; `died` sees
// what each death left.
template <typename Run, typename Died>
void die_at_every_write(const Shape& shape, int stride, Run run, Died died) {
    for (std::size_t moment = 0; moment < shape.moments; ++moment)
        for (int write = 1;; write += write < 4 ? 1 : stride) {
            const std::string at = moments[moment] + std::to_string(write);
            const int before = check::failures();
            const int status = run(Fate{at, ""});
            if (!was_killed(status)) {
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                CHECK(write > 3);
                break;
            }
            died();
            if (check::failures() != before) CHECK_EQ(at, "whole");
        }
}

// A run that died in the middle, with some of its blocks written.
void leave_remains(const ScratchDir& dir, const std::string& compression) {
    REQUIRE(was_killed(run_victim({"finish", dir.path(), compression, "3000"}, {"inside:9", ""})));
}

}  // namespace

TEST("a run that dies at any of its writes, its last ones too, is completed exactly once") {
    for (const auto& shapes : {whole_files, in_parts})
        for (const Shape& shape : {shapes[0], shapes[1]}) {
            std::unique_ptr<ScratchDir> dir;
            die_at_every_write(
                shape, 1,
                [&](const Fate& fate) {
                    dir = std::make_unique<ScratchDir>();
                    return run_victim(shape.command(*dir), fate);
                },
                [&] {
                    adopt(*dir);
                    check_whole(*dir, shape);
                });
            check_whole(*dir, shape);
        }
}

TEST("an adoption that dies at any of its writes is completed by the next, with the same lines") {
    for (const Shape& shape :
         {Shape{"none", "3000"}, {"gzip", "3000"}, {"zstd", "3000"}, in_parts[0], in_parts[1]}) {
        const ScratchDir dir;
        // In the middle of a block, or between the footer of a part and the next part.
        REQUIRE(
            was_killed(run_victim(shape.command(dir), {shape.moments == 3 ? "inside:9" : "create:3", ""})));
        const Remains remains(dir);
        adopt(dir);
        check_whole(dir, shape);
        const auto lines = span_lines(read_parts(dir));
        die_at_every_write(
            shape, shape.moments == 3 ? 3 : 1,
            [&](const Fate& fate) {
                remains.restore();
                return run_victim({"adopt", remains.spool_path()}, fate);
            },
            [&] {
                adopt(dir);
                check_whole(dir, shape);
                CHECK(span_lines(read_parts(dir)) == lines);
            });
    }
}

TEST("an adoption that died between its last write and its last word adds nothing") {
    const ScratchDir dir;
    leave_remains(dir, "gzip");
    const std::string spool = dir.only(".spool");
    const int held = open(spool.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(held >= 0);
    const std::string path = adopted(spool).path;
    const std::string bytes = file_bytes(path);
    fs::copy_file("/proc/self/fd/" + std::to_string(held), spool);
    close(held);
    OpenedSpool(spool).header().finalized.store(0);
    CHECK_EQ(adopted(spool).path, path);
    CHECK(file_bytes(path) == bytes);
}

TEST("an adoption that finds the disk full leaves everything for the next") {
    const ScratchDir dir;
    leave_remains(dir, "none");
    const Remains remains(dir);
    const auto lines = span_lines(adopted(remains.spool_path()));
    const std::uint64_t end = fs::file_size(dir.only(".pfw"));
    for (std::uint64_t limit = 0; limit < end - remains.trace_bytes(); limit += 3571) {
        remains.restore();
        const int status = run_victim({"adopt", remains.spool_path()}, {"", std::to_string(limit)});
        CHECK_EQ(WEXITSTATUS(status), static_cast<int>(Adopted::failed));
        const Trace trace = adopted(remains.spool_path());
        check_shape(trace, "died");
        CHECK(span_lines(trace) == lines);
    }
}

TEST(
    "an adoption whose trace is removed or cut meanwhile keeps the spool, and all that it has told from it") {
    for (const char* compression : {"none", "gzip"}) {
        const ScratchDir dir;
        leave_remains(dir, compression);
        const Remains remains(dir);
        const std::string trace = dir.only(compression == std::string("none") ? ".pfw" : ".pfw.gz");
        fs::remove(trace);
        const AdoptionTerms anew{.anew = true};
        const AdoptionResult whole = adopt_spool(remains.spool_path(), anew);
        REQUIRE(whole.state == Adopted::finished);
        const auto lines = span_lines(read_trace(whole.outcome.trace_path));
        CHECK(lines.size() > 100);
        for (const char* moment : {"gone:", "cut:"})
            for (int write = 1;; ++write) {
                remains.restore();
                const int status =
                    run_victim({"adopt", remains.spool_path()}, {moment + std::to_string(write), ""});
                REQUIRE(WIFEXITED(status));
                if (WEXITSTATUS(status) == static_cast<int>(Adopted::finished)) {
                    CHECK(write > 2);
                    break;
                }
                CHECK_EQ(WEXITSTATUS(status), static_cast<int>(Adopted::failed));
                // In one that was cut there may be anything: it is not added to.
                CHECK(adopt_spool(remains.spool_path()).state == Adopted::failed);
                const std::string cut = fs::exists(trace) ? file_bytes(trace) : "";
                const AdoptionResult again = adopt_spool(remains.spool_path(), anew);
                CHECK_EQ(again.outcome.error, "");
                REQUIRE(again.state == Adopted::finished);
                CHECK_EQ(again.damage.size(), 1);
                CHECK((fs::exists(trace) ? file_bytes(trace) : "") == cut);
                CHECK(span_lines(read_trace(again.outcome.trace_path)) == lines);
            }
    }
}

TEST("a run that dies while it removes its oldest part is completed in the part it was in") {
    for (const char* max_files : {"1", "2"})
        for (const std::string moment : {"remove:", "removed:"})
            for (int number = 1; number < 4; ++number) {
                const ScratchDir dir;
                const int status =
                    run_victim(in_parts[0].command(dir, max_files), {moment + std::to_string(number), ""});
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

TEST(
    "a disk that is full at any byte of a trace costs nothing: the spool has it, and whoever adopts it says "
    "why") {
    for (const Shape& shape : {whole_files[0], in_parts[0], in_parts[1]}) {
        std::uint64_t whole = 0;
        {
            const ScratchDir dir;
            CHECK_EQ(run_victim(shape.command(dir)), 0);
            for (const Trace& part : read_parts(dir)) whole += fs::file_size(part.path);
        }
        std::vector<std::uint64_t> limits;
        for (std::uint64_t limit = 1; limit < whole - 600; limit += whole / 37) limits.push_back(limit);
        // At the end of the one file it is the open spans, and then the footer, that do not fit.
        for (std::uint64_t left = 1900; left > 0 && shape.moments == 3; left -= 190)
            limits.push_back(whole - left);
        for (const std::uint64_t limit : limits) {
            const ScratchDir dir;
            const int status = run_victim(shape.command(dir), {"", std::to_string(limit)});
            REQUIRE(WIFEXITED(status));
            // Numbers of a machine that others keep busy are longer than those of the next run.
            if (WEXITSTATUS(status) == 0 && limit > whole / 5 * 4) {
                check_whole(dir, shape);
                continue;
            }
            CHECK_EQ(WEXITSTATUS(status), 1);
            adopt(dir);
            check_whole(dir, shape);
            const std::string last = read_parts(dir).back().text;
            CHECK(last.find(R"("write_error":"No space left on device")") != std::string::npos);
            CHECK(last.find(R"("ended":"finalize")") != std::string::npos);
        }
    }
}

TEST("a disk that has room again takes what it could not, in parts that are whole") {
    for (const Shape& shape : in_parts)
        for (const int failures : {1, 2})
            for (std::uint64_t limit = 1; limit < 40'000; limit += 1733) {
                const ScratchDir dir;
                const int status = run_victim(shape.command(dir),
                                              {"", std::to_string(limit) + ":" + std::to_string(failures)});
                // The last write of all is not tried again.
                if (WIFEXITED(status) && WEXITSTATUS(status) == 1) adopt(dir);
                check_whole(dir, shape);
            }
}
