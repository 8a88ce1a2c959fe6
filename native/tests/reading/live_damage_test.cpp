// Spools that are cut, damaged or made up: they are read as far as they make sense, or refused.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "check.hpp"
#include "dftrace/reading/live_spool.hpp"
#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/text/json_check.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

constexpr std::uint64_t a_minute_ns = 60'000'000'000;

// The bytes of the spool of a process that was killed inside of two spans.
std::string dead_spool(const ScratchDir& dir) {
    in_child([&] {
        TraceSettings s = dir.settings();
        s.flush_interval_ms = 1'000'000;
        start_run(s);
        EventName outer("pipeline", "train"), inner("compute", "forward");
        recording_thread();
        const std::uint32_t args = current_session()->put_arguments(",\"step\":7");
        SpanScope a(outer, args);
        for (int i = 0; i < 2500; ++i) SpanScope b(inner, args);
        SpanScope c(inner, args);
        a.leak();
        c.leak();
        kill(getpid(), SIGKILL);
    });
    return file_bytes(dir.only(".spool"));
}

void write_file(const std::string& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string refusal(const std::string& path) {
    try {
        look_into(path, a_minute_ns);
    } catch (const std::exception& error) {
        return error.what();
    }
    return {};
}

void check_believable(const LiveSpool& spool) {
    CHECK(is_json_members(spool.header));
    CHECK(spool.now_ns <= spool.present_ns || spool.state == ProcessState::alive);
    for (const LiveThread& thread : spool.threads) {
        CHECK(thread.open.size() <= max_open_spans && thread.tasks.size() <= max_open_task_spans);
        CHECK(thread.covered_ns <= a_minute_ns);
        std::uint64_t spent = 0;
        for (const auto& [name, ns] : thread.self_ns) spent += ns;
        CHECK(spent <= thread.covered_ns);
        for (const auto* spans : {&thread.open, &thread.tasks})
            for (const LiveSpan& span : *spans) {
                CHECK(is_json_members(span.args));
                CHECK(span.start_ns <= spool.now_ns);
            }
        for (const auto& [ns, args] : thread.newest_args) CHECK(is_json_members(args));
    }
}

}  // namespace

TEST("what is no spool of this version is refused in words") {
    const ScratchDir dir;
    std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    write_file(path, "hello");
    CHECK_EQ(refusal(path), "not a spool");
    write_file(path, std::string(unit_bytes, '\0'));
    CHECK_EQ(refusal(path), "not a spool");
    CHECK_EQ(refusal(dir.path()), "not a spool");
    CHECK_THROWS(std::system_error, look_into(dir.file("missing"), 0));
    REQUIRE_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
    CHECK_EQ(refusal(dir.file("pipe")), "not a spool");
    const std::uint32_t newer = spool_version + 1;
    std::memcpy(bytes.data() + offsetof(SpoolHeader, version), &newer, sizeof newer);
    write_file(path, bytes);
    CHECK_EQ(refusal(path), "spool version " + std::to_string(newer) +
                                " is not known to this dftrace (it reads version " +
                                std::to_string(spool_version) + ")");
    // Cut to less than a header, which says the version all the same.
    write_file(path, bytes.substr(0, 100));
    CHECK(refusal(path).starts_with("spool version"));
}

TEST("a spool that is cut anywhere tells what is left of it") {
    const ScratchDir dir;
    const std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    std::size_t told = 0;
    for (std::size_t length = unit_bytes; length < bytes.size(); length += 4099) {
        write_file(path, bytes.substr(0, length));
        const LiveSpool seen = look_into(path, a_minute_ns);
        check_believable(seen);
        told += seen.threads.size();
    }
    CHECK(told > 0);
}

TEST("a spool may be cut while it is read") {
    const ScratchDir dir;
    const std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    write_file(path, bytes);
    const SpoolCopy copy(path);
    const auto units = copy.units();
    REQUIRE(units.size() > 3);
    REQUIRE_EQ(truncate(path.c_str(), 100), 0);
    std::vector<Record> records;
    for (const UnitFacts& unit : units) {
        CHECK(!copy.records(unit, records));
        CHECK(!copy.stack(unit));
    }
    Texts wanted{{1, ""}};
    copy.fill_names(units, wanted);
    CHECK_EQ(wanted.at(1), "");
}

TEST("a huge file that says it is a spool is soon done with") {
    const ScratchDir dir;
    std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    const std::uint32_t most = UINT32_MAX;
    std::memcpy(bytes.data() + offsetof(SpoolHeader, units), &most, sizeof most);
    write_file(path, bytes);
    REQUIRE_EQ(truncate(path.c_str(), off_t{1} << 42), 0);
    const LiveSpool seen = look_into(path, a_minute_ns);
    CHECK_EQ(seen.threads.size(), 1);
    check_believable(seen);
}

TEST("names and arguments that are no JSON are not shown") {
    const ScratchDir dir;
    std::string bytes = dead_spool(dir);
    const std::string path = dir.file("x.spool");
    for (const auto& [text, other] :
         {std::pair<std::string, std::string>{"\"name\":\"forward\"", "\"name\":\"for\\ward\""},
          {",\"step\":7", ",\"step\":}"}}) {
        const std::size_t at = bytes.find(text);
        REQUIRE(at != std::string::npos);
        bytes.replace(at, text.size(), other.substr(0, text.size()));
    }
    write_file(path, bytes);
    const LiveSpool seen = look_into(path, a_minute_ns);
    check_believable(seen);
    REQUIRE_EQ(seen.threads.size(), 1);
    REQUIRE_EQ(seen.threads[0].open.size(), 2);
    CHECK((seen.threads[0].open[0].name == LiveName{"train", "pipeline"}));
    CHECK(!seen.threads[0].open[1].name);
    CHECK_EQ(seen.threads[0].open[1].args, "");
}
