// From units to the trace, pass by pass, without a session or a drain thread.
#include "dftrace/recording/record_flow.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "check.hpp"
#include "dftrace/text/names.hpp"
#include "scratch.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

struct Flowing {
    explicit Flowing(const char* prefix = "trace") : settings(with(dir, prefix)) {
        spool.header().clock[0] = clock.segments().front();
        spool.header().clock_segments.store(1);
        name = intern_name("flow", "span");
        blobs.define_names(name);
    }
    static TraceSettings with(const ScratchDir& dir, const char* prefix) {
        TraceSettings settings = dir.settings();
        settings.prefix = dir.file(prefix);
        return settings;
    }
    Thread& thread(const char* called) {
        Thread* made = threads.attach(*retention, ++tids, called);
        REQUIRE(made);
        made->next_id = threads.new_ids(100'000);
        made->end_id = made->next_id + 100'000;
        return *made;
    }
    void span(Thread& by, std::uint32_t args = 0) {
        if (by.cursor == by.limit) {
            UnitHeader* unit = retention->next_unit(by);
            REQUIRE(unit);
            by.unit = unit;
            by.cursor = records_of(unit);
            by.limit = by.cursor + unit->capacity;
            by.committed = &unit->committed;
            by.count = 0;
        }
        Record& r = *by.cursor;
        r = Record{};
        r.start = by.tick();
        r.end = by.tick();
        r.id = by.new_id();
        r.node = name;
        r.args = args;
        r.level = 1;
        r.kind = Kind::span;
        by.commit();
    }
    void spans(Thread& by, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) span(by);
    }
    void turn() { CHECK_EQ(retention->turn(flow, true, {}).value_or(-1), 0); }
    Footer end() {
        CHECK_EQ(retention->end(flow, {"finalize"}), 0);
        return check_complete(read_trace(flow.writer().path()), "finalize");
    }

    std::uint32_t put(std::string_view members) {
        std::uint32_t nothing = 0;
        return blobs.put_arguments(members, nothing).value_or(0);
    }

    ScratchDir dir;
    TraceSettings settings;
    Spool spool{dir.file("a.spool"), 64 * unit_bytes};
    ClockMap clock = ClockMap::anchored_now(0);
    std::unique_ptr<Retention> retention = make_retention(settings, spool, [](bool) {});
    ThreadRegistry threads{nullptr, 1};
    BlobStore blobs{*retention};
    RecordFlow flow{settings, spool, clock, 1, threads, blobs, *retention};
    std::uint32_t name = 0;
    std::uint32_t tids = 0;
};

}  // namespace

TEST("a pass formats what is committed, of all threads, and nothing twice") {
    Flowing at;
    Thread& first = at.thread("first");
    Thread& second = at.thread("second");
    at.spans(first, 10);
    CHECK_EQ(at.flow.pass(), 0);
    CHECK_EQ(first.unit->consumed, 0);
    CHECK_EQ(at.flow.writer().flush(), 0);
    CHECK_EQ(first.unit->consumed, 10);
    CHECK_EQ(at.flow.writer().blocks().lines_written(), 10);
    at.spans(first, 3);
    at.spans(second, 4);
    *second.cursor = Record{};  // of a record that is not committed nothing is told
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(at.flow.pass(), 0);
        CHECK_EQ(at.flow.writer().flush(), 0);
        CHECK_EQ(at.flow.writer().blocks().lines_written(), 17);
    }
    CHECK_EQ(at.spool.header().clock_segments.load(), at.flow.clock().segments().size());
    CHECK_EQ(at.end().number("spans"), 17);
}

TEST("units that are in the file come back while their thread records on, and its first one stays") {
    Flowing at;
    Thread& thread = at.thread("fills");
    UnitHeader* first = thread.unit;
    std::uint64_t made = 0, most = 0;
    for (int round = 0; round < 20; ++round) {
        at.spans(thread, 2500);
        made += 2500;
        CHECK_EQ(at.flow.pass(), 0);
        const std::uint64_t before = at.retention->times_given_back();
        CHECK_EQ(at.flow.writer().flush(), 0);
        if (round) CHECK(at.retention->times_given_back() >= before + 2);
        most = std::max(most, at.spool.used_bytes() / unit_bytes);
    }
    CHECK(first->kind == UnitKind::thread && first->left == 1);
    CHECK_EQ(first->consumed, first->capacity);
    CHECK(most < 12);
    CHECK_EQ(at.end().number("spans"), made);
}

TEST("of what cannot be written nothing is over, and nothing is lost") {
    Flowing at("later/trace");
    Thread& ended = at.thread("ended");
    at.spans(ended, 5);
    at.retention->thread_over(ended);
    at.spans(at.thread("goes on"), 20);
    CHECK_EQ(at.flow.pass(), 0);
    CHECK_EQ(at.flow.writer().flush(), ENOENT);
    at.spans(*at.flow.sources().back()->thread, 20);
    CHECK(at.flow.pass() != 0);  // what failed goes first
    for (const auto& source : at.flow.sources()) CHECK(!source->over);
    at.flow.drop_ended_sources();
    REQUIRE_EQ(at.flow.sources().size(), 2);
    REQUIRE(mkdir(at.dir.file("later").c_str(), 0700) == 0);
    at.turn();
    CHECK_EQ(at.flow.sources().size(), 1);
    CHECK_EQ(at.end().number("spans"), 45);
}

TEST("a thread that is over is dropped once all of it is written, and gives back both of its units") {
    Flowing at;
    Thread& thread = at.thread("over");
    at.spans(thread, 1000);
    CHECK(thread.unit != &thread.block->unit);
    CHECK_EQ(at.flow.pass(), 0);
    at.retention->thread_over(thread);
    at.flow.drop_ended_sources();
    CHECK_EQ(at.flow.sources().size(), 1);  // it ended behind the back of that pass
    const std::uint64_t before = at.retention->times_given_back();
    at.turn();
    CHECK(at.flow.sources().empty());
    CHECK_EQ(at.retention->times_given_back(), before + 2);
    CHECK_EQ(at.end().number("spans"), 1000);
}

TEST("what is open at the end is told: on the stack, beyond it, of tasks, and of threads that are gone") {
    Flowing at;
    Thread& deep = at.thread("deep");
    for (std::uint32_t i = 0; i < max_open_spans + 5; ++i) REQUIRE(deep.push(at.name, 0));
    Thread& gone = at.thread("gone");
    const OpenSpan* span = gone.push(at.name, 0);
    REQUIRE(span);
    OpenSpan of_task = *span;
    of_task.id = gone.new_id();
    CHECK(gone.take_task_slot(of_task) >= 0);
    at.spans(gone, 1);
    at.retention->thread_over(gone);
    at.turn();
    CHECK_EQ(at.flow.sources().size(), 2);
    const Footer footer = at.end();
    CHECK_EQ(footer.number("unfinished"), max_open_spans + 5 + 2);
    CHECK_EQ(footer.number("spans"), 1);
}

TEST("a snapshot is known until all that can name it is written: records, and spans that are open still") {
    Flowing at;
    Thread& thread = at.thread("names");
    const std::uint32_t of_record = at.put(",\"of\":\"record\"");
    const std::uint32_t of_span = at.put(",\"of\":\"span\"");
    const std::uint32_t kept = at.put(",\"of\":\"none\"");
    at.span(thread, of_record);
    const OpenSpan* open = thread.push(at.name, of_span);
    REQUIRE(open);
    const std::uint64_t id = open->id;
    at.blobs.release_arguments(of_record);
    at.blobs.release_arguments(of_span);
    at.turn();
    CHECK(!at.flow.tables().arguments(of_record).empty());
    for (int i = 0; i < 3; ++i) at.turn();
    CHECK(at.flow.tables().arguments(of_record).empty());
    CHECK_EQ(at.flow.tables().arguments(of_span), ",\"of\":\"span\"");
    CHECK(thread.pop(id));
    at.turn();
    CHECK(at.flow.tables().arguments(of_span).empty());
    CHECK(!at.flow.tables().arguments(kept).empty());
    const Footer footer = at.end();
    CHECK_EQ(footer.number("spans"), 1);
    CHECK(read_trace(at.flow.writer().path()).text.find("\"of\":\"record\"") != std::string::npos);
}

TEST("where a thread has more spans open than can be seen, no snapshot is forgotten") {
    Flowing at;
    Thread& thread = at.thread("deep");
    const std::uint32_t args = at.put(",\"n\":1");
    for (std::uint32_t i = 0; i < max_open_spans; ++i) REQUIRE(thread.push(at.name, 0));
    REQUIRE(thread.push(at.name, args));
    at.blobs.release_arguments(args);
    for (int i = 0; i < 4; ++i) at.turn();
    CHECK(!at.flow.tables().arguments(args).empty());
    CHECK(thread.pop(thread.top()->id));
    at.turn();
    CHECK(at.flow.tables().arguments(args).empty());
    CHECK_EQ(at.end().number("unfinished"), max_open_spans);
}

TEST("units of snapshots that are not needed any more come back") {
    Flowing at;
    Thread& thread = at.thread("snapshots");
    const std::string large(20'000, 'x');
    for (int i = 0; i < 400; ++i) {  // three to a unit: twice as much as there is room for
        const std::uint32_t args = at.put(",\"large\":\"" + large + '"');
        REQUIRE(args);
        at.span(thread, args);
        at.blobs.release_arguments(args);
        at.turn();
    }
    CHECK_EQ(at.spool.header().args_sanitised.load(), 0);
    CHECK_EQ(at.end().number("spans"), 400);
}
