// Death at every single write: of a run that ends, and of the one that adopts it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/reading/adoption.hpp"
#include "scratch.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

constexpr const char* moments[] = {"before:", "inside:", "after:"};

// The lines of `victim finish`, without what differs from run to run.
std::map<std::string, int> shape(const Trace& trace) {
    std::map<std::string, int> counts;
    trace.each([&counts](const TraceEvent& e) {
        if (e.ph == "X" || e.ph == "B")
            ++counts[std::string(e.ph) + " " + std::string(e.name) + " " + std::string(e.arg("level"))];
    });
    return counts;
}

// What the victim's run is known to hold.
void check_shape(const Trace& trace, std::string_view ended) {
    const Footer footer = check_complete(trace, ended);
    CHECK_EQ(footer.number("spans"), 600);
    CHECK_EQ(footer.number("unfinished"), 10);
}

// A spool and a trace as a death left them, to be restored at will.
class Remains {
  public:
    explicit Remains(const ScratchDir& dir) : dir_(dir), spool_path_(dir.only(".spool")) {
        spool_ = file_bytes(spool_path_);
        for (const std::string& path : dir.files())
            if (path.find(".pfw") != std::string::npos) traces_[path] = file_bytes(path);
    }
    void restore() const {
        for (const std::string& path : dir_.files())
            if (path.find(".pfw") != std::string::npos) fs::remove(path);
        write(spool_path_, spool_);
        for (const auto& [path, bytes] : traces_) write(path, bytes);
    }
    const std::string& spool_path() const { return spool_path_; }
    std::uint64_t trace_bytes() const { return traces_.empty() ? 0 : traces_.begin()->second.size(); }

  private:
    static void write(const std::string& path, const std::string& bytes) {
        fs::remove(path);
        std::FILE* file = std::fopen(path.c_str(), "wb");
        REQUIRE(file != nullptr);
        CHECK_EQ(std::fwrite(bytes.data(), 1, bytes.size(), file), bytes.size());
        std::fclose(file);
    }
    const ScratchDir& dir_;
    std::string spool_path_;
    std::string spool_;
    std::map<std::string, std::string> traces_;
};

// A run that died in the middle, with some of its blocks written.
void leave_remains(const ScratchDir& dir, const std::string& compression) {
    REQUIRE(was_killed(run_victim({"finish", dir.path(), compression, "3000"}, {"inside:9", ""})));
}

}  // namespace

TEST("a run that dies at any of its writes, its last ones too, is completed exactly once") {
    for (const char* compression : {"none", "gzip"})
        for (const char* moment : moments)
            for (int write = 1;; ++write) {
                const ScratchDir dir;
                const std::vector<std::string> arguments{"finish", dir.path(), compression, "20000"};
                const int status = run_victim(arguments, {moment + std::to_string(write), ""});
                if (!was_killed(status)) {
                    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                    CHECK(write > 4);
                    break;
                }
                const AdoptionResult result = adopt_spool(dir.only(".spool"));
                CHECK_EQ(result.outcome.error, "");
                REQUIRE(result.state == Adopted::finished);
                const Trace trace = read_trace(result.outcome.trace_path);
                // Only the footer itself knows how it came to be written.
                const bool whole = trace.text.find("\"ended\":\"finalize\"") != std::string::npos;
                check_shape(trace, whole ? "finalize" : "died");
                CHECK_EQ(dir.files(".pfw").size() + dir.files(".pfw.gz").size(), 1);
            }
}

TEST("an adoption that dies at any of its writes is completed by the next, with the same lines") {
    for (const char* compression : {"none", "gzip", "zstd"}) {
        const ScratchDir dir;
        leave_remains(dir, compression);
        const Remains remains(dir);
        const Trace reference = adopted(remains.spool_path());
        check_shape(reference, "died");
        const auto lines = span_lines(reference);
        for (const char* moment : moments)
            for (int write = 1;; write += write < 4 ? 1 : 3) {
                remains.restore();
                const int status =
                    run_victim({"adopt", remains.spool_path()}, {moment + std::to_string(write), ""});
                if (!was_killed(status)) {
                    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
                    CHECK(write > 4);
                    break;
                }
                const Trace trace = adopted(remains.spool_path());
                check_shape(trace, "died");
                CHECK(shape(trace) == shape(reference));
                if (span_lines(trace) != lines) CHECK_EQ(moment + std::to_string(write), "the same lines");
            }
    }
}

TEST("adoptions may die one after the other") {
    const ScratchDir dir;
    leave_remains(dir, "gzip");
    const Remains remains(dir);
    const auto lines = span_lines(adopted(remains.spool_path()));
    std::mt19937 random(31);
    for (int round = 0; round < 6; ++round) {
        remains.restore();
        for (int death = 0; death < 8 && fs::exists(remains.spool_path()); ++death)
            run_victim({"adopt", remains.spool_path()},
                       {moments[random() % 3] + std::to_string(1 + random() % 5), ""});
        const std::string trace =
            fs::exists(remains.spool_path()) ? adopted(remains.spool_path()).path : dir.only(".pfw.gz");
        CHECK(span_lines(read_trace(trace)) == lines);
        check_shape(read_trace(trace), "died");
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

TEST("a run that ends on a full disk is completed by whoever adopts it") {
    std::uint64_t whole = 0;
    {
        const ScratchDir dir;
        CHECK_EQ(run_victim({"finish", dir.path(), "none", "20000"}), 0);
        whole = fs::file_size(dir.only(".pfw"));
        check_shape(read_trace(dir.only(".pfw")), "finalize");
    }
    // In the last steps it is the open spans, and then the footer, that do not fit.
    std::vector<std::uint64_t> limits{1, 900, whole / 2, whole - 3000};
    for (std::uint64_t left = 1900; left > 0; left -= 190) limits.push_back(whole - left);
    for (const std::uint64_t limit : limits) {
        const ScratchDir dir;
        const int status = run_victim({"finish", dir.path(), "none", "20000"}, {"", std::to_string(limit)});
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 1);
        const Trace trace = adopted(dir.only(".spool"));
        // It has ended its run, and knows why the file lacks the rest.
        check_shape(trace, "finalize");
        CHECK(trace.text.find(R"("write_error":"No space left on device")") != std::string::npos);
        CHECK_EQ(dir.files(".pfw").size(), 1);
    }
}
