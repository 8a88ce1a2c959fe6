// Completing a trace writes in the directory that was named and nowhere else, whatever the spool says,
// and leaves what belongs to somebody else alone.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/reading/adoption.hpp"
#include "parts_reader.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;
namespace fs = std::filesystem;

namespace {

constexpr uid_t somebody = 1000;
constexpr gid_t some_group = 1001;

void record(std::uint64_t spans) {
    EventName name("confinement", "span");
    record_spans(name, spans);
}

// A run of which 100 spans are in the trace, and 100 in the spool.
std::string half_written(const ScratchDir& dir, const TraceSettings& settings) {
    return leave_spool(dir, unwritten(settings), [] {
        record(100);
        current_session()->flush();
        record(100);
    });
}

void rename_trace(const std::string& spool, const std::string& name) {
    const OpenedSpool opened(spool);
    opened.header().trace_paths[0].set(0, name);
}

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

// Paths and contents of all there is.
std::map<std::string, std::string> contents(const ScratchDir& dir) {
    std::map<std::string, std::string> all;
    for (const auto& entry : fs::recursive_directory_iterator(dir.path()))
        all[entry.path().string()] = entry.is_regular_file() ? file_bytes(entry.path().string()) : "";
    return all;
}

struct Owner {
    uid_t user;
    gid_t group;
};
Owner owner_of(const std::string& path) {
    struct stat info {};
    REQUIRE(lstat(path.c_str(), &info) == 0);
    return {info.st_uid, info.st_gid};
}

}  // namespace

TEST("a trace is completed in the directory that was named") {
    const ScratchDir home, other;
    const std::string spool = half_written(home, home.settings());
    const std::string trace = home.only(".pfw.gz");
    const std::string here = other.file(fs::path(trace).filename().string());
    fs::copy_file(trace, here);
    const auto before = contents(home);
    const AdoptionResult result = adopt_spool(spool, {.directory = other.path()});
    CHECK_EQ(result.outcome.error, "");
    CHECK_EQ(result.outcome.trace_path, here);
    CHECK_EQ(check_complete(read_trace(here), "died").number("spans"), 200);
    CHECK_EQ(file_bytes(trace), before.at(trace));
    CHECK_EQ(other.files().size(), 1);
}

TEST("names that lead elsewhere do not") {
    for (const char* name : {"/etc/passwd", "../victim", "../../victim", "sub/../../victim", "..", ".", "/",
                             "", "victim/", "/../victim"}) {
        const ScratchDir outer;
        const std::string directory = outer.file("traces");
        fs::create_directory(directory);
        put(outer.file("victim"), "precious");
        const ScratchDir home;
        const std::string spool = half_written(home, home.settings());
        rename_trace(spool, name);
        const auto before = contents(home);
        const AdoptionResult result = adopt_spool(spool, {.directory = directory});
        CHECK(result.state == Adopted::failed);
        CHECK_EQ(file_bytes(outer.file("victim")), "precious");
        CHECK(fs::is_empty(directory));
        CHECK_EQ(contents(home).size(), before.size());
    }
}

TEST("a prefix that leads elsewhere does not") {
    const ScratchDir outer;
    fs::create_directory(outer.file("traces"));
    fs::create_directory(outer.file("elsewhere"));
    TraceSettings settings = outer.settings();
    settings.prefix = outer.file("traces/../elsewhere/trace");
    const std::string spool = leave_spool(outer, unwritten(settings), [] { record(10); });
    const AdoptionResult result = adopt_spool(spool, {.directory = outer.file("traces")});
    CHECK(result.state == Adopted::finished);
    CHECK_EQ(fs::path(result.outcome.trace_path).parent_path().string(), outer.file("traces"));
    for (const auto& entry : fs::directory_iterator(outer.file("elsewhere")))
        CHECK(entry.path().extension() == ".spool-at");
}

TEST("a host that is part of a path is no host") {
    const ScratchDir dir;
    const std::string spool = leave_spool(dir, unwritten(dir.settings()), [] { record(10); });
    {
        const OpenedSpool opened(spool);
        TraceSettings settings = dir.settings();
        settings.host = "../" + settings.host;
        const std::string encoded = settings.encode();
        encoded.copy(opened.header().settings, encoded.size());
        opened.header().settings_bytes = static_cast<std::uint32_t>(encoded.size());
    }
    const AdoptionResult result = adopt_spool(spool, {.directory = dir.path()});
    CHECK(result.state == Adopted::failed);
    CHECK(dir.files(".pfw.gz").empty());
}

TEST("what is in the place of the trace and is not the trace is left as it is") {
    for (const std::string kind : {"nothing", "link", "dangling", "pipe", "directory", "shorter", "empty"}) {
        const ScratchDir dir, elsewhere;
        const std::string spool = half_written(dir, dir.settings());
        const std::string trace = dir.only(".pfw.gz");
        const std::string bytes = file_bytes(trace);
        fs::rename(trace, elsewhere.file("precious"));
        if (kind == "link") fs::create_symlink(elsewhere.file("precious"), trace);
        if (kind == "dangling") fs::create_symlink(elsewhere.file("new"), trace);
        if (kind == "pipe") REQUIRE(mkfifo(trace.c_str(), 0600) == 0);
        if (kind == "directory") fs::create_directory(trace);
        if (kind == "shorter") put(trace, bytes.substr(0, bytes.size() - 1));
        if (kind == "empty") put(trace, "");
        for (int attempt = 0; attempt < 2; ++attempt) {
            const AdoptionResult result = adopt_spool(spool, {.directory = dir.path()});
            CHECK(result.state == Adopted::failed);
            CHECK(result.outcome.error.find(trace) != std::string::npos);
        }
        CHECK_EQ(file_bytes(elsewhere.file("precious")), bytes);
        CHECK_EQ(elsewhere.files().size(), 1);
        // Nothing is lost by having tried.
        fs::remove(trace);
        fs::rename(elsewhere.file("precious"), trace);
        CHECK_EQ(check_complete(adopted(spool), "died").number("spans"), 200);
    }
}

TEST("a trace that belongs to another user is not touched") {
    if (geteuid() != 0) SKIP("needs root");
    for (const bool longer : {false, true}) {
        const ScratchDir dir;
        const std::string spool = half_written(dir, dir.settings());
        const std::string trace = dir.only(".pfw.gz");
        if (longer) std::ofstream(trace, std::ios::app) << "and more";
        REQUIRE(lchown(trace.c_str(), somebody, some_group) == 0);
        const std::string bytes = file_bytes(trace);
        const AdoptionResult result = adopt_spool(spool, {.directory = dir.path()});
        CHECK(result.state == Adopted::failed);
        CHECK(result.outcome.error.find("not permitted") != std::string::npos);
        CHECK(file_bytes(trace) == bytes);
        REQUIRE(lchown(trace.c_str(), geteuid(), getegid()) == 0);
        CHECK_EQ(check_complete(adopted(spool), "died").number("spans"), 200);
    }
}

TEST("what root completes for a user belongs to the user, every part of it") {
    if (geteuid() != 0) SKIP("needs root");
    for (const std::uint64_t max_file_bytes : {0u, 5000u}) {
        const ScratchDir dir;
        TraceSettings settings = dir.settings();
        settings.max_file_bytes = max_file_bytes;
        settings.block_bytes = 1000;
        settings.compression = Compression::none;
        const std::string spool = leave_spool(dir, unwritten(settings), [] { record(300); });
        REQUIRE(lchown(spool.c_str(), somebody, some_group) == 0);
        for (const std::string& path : dir.files(".pfw"))
            REQUIRE(lchown(path.c_str(), somebody, some_group) == 0);
        const AdoptionResult result = adopt_spool(spool, {.directory = dir.path()});
        CHECK_EQ(result.outcome.error, "");
        const auto parts = read_parts(dir);
        CHECK_EQ(check_parts(parts, "died").at("spans"), 300);
        CHECK_EQ(parts.size() > 3, max_file_bytes != 0);
        for (const Trace& part : parts) {
            const Owner owner = owner_of(part.path);
            CHECK_EQ(owner.user, somebody);
            CHECK_EQ(owner.group, some_group);
            struct stat info {};
            REQUIRE(stat(part.path.c_str(), &info) == 0);
            CHECK_EQ(info.st_mode & 07777u, 0600u);
        }
    }
}
