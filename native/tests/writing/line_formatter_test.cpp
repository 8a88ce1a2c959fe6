// The exact bytes of every kind of line.
#include "dftrace/writing/line_formatter.hpp"

#include <functional>
#include <string>

#include "check.hpp"
#include "dftrace/text/hash.hpp"
#include "json_reader.hpp"

using namespace dftrace;

namespace {

constexpr std::uint64_t base_us = 1'728'000'000'000'000;

TraceSettings plain_settings() {
    TraceSettings s;
    s.host = "node-7";
    s.host_hash = "00000000000000aa";
    s.run = "00112233445566778899aabbccddeeff";
    s.process_name_json = "\"rank 3 · node-7\"";
    s.header_json = ",\"rank\":3";
    s.cwd_json = "\"/data\"";
    s.command_json = "\"train.py\"";
    s.time_base_us = base_us;
    s.epoch_offset_ns = 1'728'000'000'123'456'789;
    return s;
}

struct Scene {
    TraceSettings settings = plain_settings();
    Record record{};
    RecordText text{R"("name":"forward","cat":"compute")", {}, {}};
    std::uint64_t start_ns = base_us * 1000 + 1'123'213'646'764'123;
    std::uint64_t end_ns = start_ns + 12'345;

    explicit Scene(Kind kind) {
        record.id = 7;
        record.parent = 3;
        record.level = 2;
        record.kind = kind;
    }
    std::string line() const {
        const LineFormatter formatter(settings, 42);
        ByteBuffer out;
        formatter.line(out, record, formatter.track(43), text, start_ns, end_ns);
        return std::string(out.view());
    }
};

// A line of the scene begins so, where it is not told otherwise.
const std::string common = R"({"id":7,"name":"forward","cat":"compute","pid":42,"tid":43,)";
const std::string timed = common + R"("ts":1123213646764.123,)";
const std::string args = R"("args":{"hhash":"00000000000000aa",)";

}  // namespace

TEST("every kind of line, byte for byte") {
    struct Case {
        Kind kind;
        std::function<void(Scene&)> change;
        std::string line;
    };
    const auto as_is = [](Scene&) {};
    const std::string arrow = R"({"id":1234567890123,"name":"forward","cat":"compute","pid":42,"tid":43,)"
                              R"("ts":1123213646764.123,)";
    const auto with_value = [](Scene& s) { s.record.value = 1234567890123; };
    const Case cases[] = {
        {Kind::span, as_is, timed + R"("dur":12.345,"ph":"X",)" + args + R"("p_idx":3,"level":2}})"},
        // A count, an error and arguments, in this order.
        {Kind::span,
         [](Scene& s) {
             s.record.value = 99;
             s.record.flags = RecordFlag::has_count;
             s.text.error = "\"ValueError\"";
             s.text.args = R"(,"epoch":1,"note":"x")";
         },
         timed + R"("dur":12.345,"ph":"X",)" + args +
             R"("p_idx":3,"level":2,"count":99,"error":"ValueError","epoch":1,"note":"x"}})"},
        {Kind::span, [](Scene& s) { s.record.flags = RecordFlag::unfinished; },
         timed + R"("ph":"B",)" + args + R"("p_idx":3,"level":2,"unfinished":true}})"},
        // Epoch microseconds are whole, and ends are rounded like starts.
        {Kind::span,
         [](Scene& s) {
             s.settings.epoch_us = true;
             s.start_ns = 1'700'000'000'123'456'999;
             s.end_ns = 1'700'000'000'123'458'001;
         },
         common + R"("ts":1700000000123456,"dur":2,"ph":"X",)" + args + R"("p_idx":3,"level":2}})"},
        {Kind::span,
         [](Scene& s) {
             s.settings.ids = false;
             s.text.args = ",\"epoch\":1";
         },
         timed + R"("dur":12.345,"ph":"X",)" + args + R"("epoch":1}})"},
        {Kind::instant, [](Scene& s) { s.text.args = R"(,"lr":0.1)"; },
         timed + R"("ph":"i","s":"t",)" + args + R"("p_idx":3,"level":2,"lr":0.1}})"},
        // A counter carries its series and nothing else.
        {Kind::counter, [](Scene& s) { s.text.args = R"(,"loss":0.5,"lr":1)"; },
         timed + R"("ph":"C","args":{"loss":0.5,"lr":1}})"},
        {Kind::counter, as_is, timed + R"("ph":"C","args":{}})"},
        {Kind::flow_out, with_value, arrow + R"("ph":"s"})"},
        {Kind::flow_in, with_value, arrow + R"("ph":"f","bp":"e"})"},
        // Metadata has no time.
        {Kind::metadata, [](Scene& s) { s.text.args = R"(,"name":"epoch.start","value":"17")"; },
         common + R"("ph":"M",)" + args + R"("name":"epoch.start","value":"17"}})"}};
    for (const Case& c : cases) {
        Scene scene(c.kind);
        c.change(scene);
        CHECK_EQ(scene.line(), c.line + "\n");
    }
}

TEST("times have three decimals, whatever the digits") {
    Scene s(Kind::span);
    const std::pair<std::uint64_t, const char*> cases[] = {{0, "0.000"},
                                                           {1, "0.001"},
                                                           {10, "0.010"},
                                                           {99, "0.099"},
                                                           {100, "0.100"},
                                                           {999, "0.999"},
                                                           {1000, "1.000"},
                                                           {9'999, "9.999"},
                                                           {10'000, "10.000"},
                                                           {99'999'099, "99999.099"},
                                                           {100'000'000, "100000.000"}};
    for (const auto& [ns, text] : cases) {
        s.start_ns = base_us * 1000 + ns;
        s.end_ns = s.start_ns + ns;
        const std::string line = s.line();
        CHECK(line.find(std::string("\"ts\":") + text + ",\"dur\":" + text + ",") != std::string::npos);
    }
}

TEST("numbers of any length, and texts of any length") {
    std::uint64_t power = 1;
    for (int digits = 0; digits < 20; ++digits, power *= 10)
        for (const std::uint64_t number : {power - 1, power, power + 1, power * 5, power / 2}) {
            Scene s(Kind::span);
            s.record.id = s.record.parent = number;
            const std::string line = s.line(), text = std::to_string(number);
            CHECK(line.starts_with("{\"id\":" + text + ",\"name\""));
            CHECK(line.ends_with("\"p_idx\":" + text + ",\"level\":2}}\n"));
        }
    for (std::size_t bytes = 0; bytes < 200; ++bytes) {
        Scene s(Kind::span);
        std::string words = ",\"x\":\"";
        while (words.size() < bytes) words += static_cast<char>('a' + words.size() % 26);
        s.text.args = words += '"';
        CHECK(s.line().ends_with(",\"level\":2" + words + "}}\n"));
    }
}

TEST("a moment before the base is the base: viewers drop negative times") {
    Scene s(Kind::instant);
    s.start_ns = base_us * 1000 - 1;
    CHECK(s.line().find("\"ts\":0.000,") != std::string::npos);
}

TEST("the largest numbers and texts fit") {
    Scene s(Kind::span);
    s.record.id = s.record.parent = s.record.value = UINT64_MAX;
    s.record.level = UINT16_MAX;
    s.record.flags = RecordFlag::has_count;
    s.start_ns = UINT64_MAX - 1;
    s.end_ns = UINT64_MAX;
    const std::string many = ",\"long\":\"" + std::string(3 << 20, 'x') + "\"";
    s.text.args = many;
    const std::string line = s.line();
    CHECK_EQ(json_members(line.substr(0, line.size() - 1)).size(), 9);
    CHECK(line.find("\"p_idx\":18446744073709551615,\"level\":65535,\"count\":18446744073709551615") !=
          std::string::npos);
}

TEST("the opening, the header and the hash lines") {
    const TraceSettings settings = plain_settings();
    const LineFormatter formatter(settings, 42);
    ByteBuffer out;
    formatter.opening(out);
    CHECK_EQ(
        out.view(),
        "[\n"
        R"({"name":"process_name","cat":"dftrace","pid":42,"tid":42,"ph":"M","args":{"name":"rank 3 · node-7"}})"
        "\n");
    out.clear();
    formatter.header(out, 41, "tsc", 0, {}, {});
    CHECK_EQ(
        out.view(),
        R"({"name":"dftrace","cat":"dftrace","pid":42,"tid":42,"ph":"M","args":{"hhash":"00000000000000aa",)"
        R"("format":1,"host":"node-7","pid":42,"ppid":41,"run":"00112233445566778899aabbccddeeff",)"
        R"("time_base_us":1728000000000000,"timestamps":"relative","clock":"tsc","rank":3,"clock_offset_ns":1728000000123456789}})"
        "\n"
        R"({"name":"HH","cat":"dftracer","pid":42,"tid":42,"ph":"M","args":{"hhash":"00000000000000aa",)"
        R"("name":"node-7","value":"00000000000000aa"}})"
        "\n"
        R"({"name":"FH","cat":"dftracer","pid":42,"tid":42,"ph":"M","args":{"hhash":"00000000000000aa",)"
        R"("name":"/data","value":")" +
            hash_hex("/data") +
            "\"}}\n"
            R"({"name":"SH","cat":"dftracer","pid":42,"tid":42,"ph":"M","args":{"hhash":"00000000000000aa",)"
            R"("name":"train.py","value":")" +
            hash_hex("train.py") + "\"}}\n");
}

TEST("the names of tracks") {
    const TraceSettings settings = plain_settings();
    const LineFormatter formatter(settings, 42);
    ByteBuffer out;
    formatter.track_name(out, 1'073'741'824, "worker \"1\"\\");
    CHECK_EQ(out.view(), R"({"name":"thread_name","cat":"dftrace","pid":42,"tid":1073741824,"ph":"M",)"
                         R"("args":{"name":"worker \"1\"\u005c"}})"
                         "\n");
}

TEST("the footer adds up") {
    const TraceSettings settings = plain_settings();
    const LineFormatter formatter(settings, 42);
    ByteBuffer out;
    const LineCounts lines{1, 20, 300, 4000, 50'000, 600'000, 7'000'000, 0};
    formatter.footer(out, lines, {11, 12, 13, 14, 15}, 16, 17, {"finalize"}, 0, {});
    CHECK_EQ(out.view(),
             R"({"name":"end","cat":"dftrace","pid":42,"tid":42,"ph":"M","args":{"hhash":"00000000000000aa",)"
             R"("events":7654321,"spans":20,"instants":300,"counters":4000,"flows":650000,)"
             R"("metadata":7000000,"unfinished":1,"dropped":11,"waits":12,"unmatched_stops":13,)"
             R"("args_sanitised":14,"bytes":16,"file_bytes":17,"drain_cpu_us":15,"ended":"finalize"}})"
             "\n");
}

TEST("what is known of the clocks of the host") {
    TraceSettings settings = plain_settings();
    settings.epoch_offset_ns = 0 - std::uint64_t{5};  // the wall clock shows less than the host has run for
    const LineFormatter formatter(settings, 42);
    ByteBuffer out;
    formatter.clocks(out, {});
    CHECK_EQ(out.view(), "");  // nobody has looked
    formatter.clocks(out, {7'000'000'123, -2, 40, {}});
    CHECK_EQ(
        out.view(),
        R"({"name":"clock","cat":"dftrace","pid":42,"tid":42,"ph":"M","args":{"hhash":"00000000000000aa",)"
        R"("boottime_ns":7000000123,"realtime_ns":-2,"width_ns":40}})"
        "\n");
    struct Case {
        ClockKeeping keeping;
        std::string_view told;
    };
    constexpr std::int64_t ppm = 65'536;
    for (const auto& [keeping, told] : {
             Case{{}, R"("clock_offset_ns":-5}})"},
             Case{{1, 1, 1500, 20, 12 * ppm + ppm / 4},
                  R"("clock_offset_ns":-5,"ntp":{"synchronised":true,"max_error_us":1500,)"
                  R"("estimated_error_us":20,"frequency_ppm":12.250}}})"},
             Case{{1, 0, 16'000'000, 16'000'000, -ppm / 8},
                  R"("ntp":{"synchronised":false,"max_error_us":16000000,"estimated_error_us":16000000,)"
                  R"("frequency_ppm":-0.125}}})"},
             // As a damaged spool may have it: numbers that viewers take.
             Case{{7, 7, INT64_MIN, INT64_MAX, INT64_MIN},
                  R"("ntp":{"synchronised":true,"max_error_us":0,"estimated_error_us":9223372036854775807,)"
                  R"("frequency_ppm":-16777216.000}}})"},
         }) {
        out.clear();
        formatter.header(out, 41, "tsc", 0, {}, keeping);
        const std::string_view line = out.view().substr(0, out.view().find('\n'));
        CHECK(line.ends_with(told));
    }
}
