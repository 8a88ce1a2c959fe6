// Lines of any record with any names, arguments and settings.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdint>
#include <string>

#include "checked_line.hpp"
#include "dftrace/text/hash.hpp"
#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/writing/line_formatter.hpp"

using namespace dftrace;

namespace {

std::string json_string(FuzzedDataProvider& input) {
    std::string json;
    append_json_string(json, input.ConsumeRandomLengthString(64));
    if (!is_json_string(json)) fail("no JSON string", json);
    return json;
}

std::string name(FuzzedDataProvider& input) {
    const std::string text = "\"name\":" + json_string(input) + ",\"cat\":" + json_string(input);
    if (!is_json_name(text)) fail("no name", text);
    return text;
}

// Keys of their own, each once.
std::string members(FuzzedDataProvider& input) {
    std::string text;
    for (int i = input.ConsumeIntegralInRange(0, 4); i > 0; --i) {
        text += ",\"u" + std::to_string(i) + "\":";
        text +=
            input.ConsumeBool() ? json_string(input) : std::to_string(input.ConsumeIntegral<std::int64_t>());
    }
    if (!is_json_members(text)) fail("no members", text);
    return text;
}

TraceSettings settings(FuzzedDataProvider& input) {
    TraceSettings s;
    s.host = input.ConsumeRandomLengthString(20);
    s.host_hash = hash_hex(s.host);
    s.run = hash_hex("run");
    s.process_name_json = json_string(input);
    s.header_json = members(input);
    if (input.ConsumeBool()) s.cwd_json = json_string(input);
    if (input.ConsumeBool()) s.command_json = json_string(input);
    s.time_base_us = input.ConsumeIntegralInRange<std::uint64_t>(0, UINT64_MAX / 1000 - 1);
    s.epoch_us = input.ConsumeBool();
    s.ids = input.ConsumeBool();
    return s;
}

Record record(FuzzedDataProvider& input) {
    Record r{};
    r.id = input.ConsumeIntegral<std::uint64_t>();
    r.parent = input.ConsumeIntegral<std::uint64_t>();
    r.value = input.ConsumeIntegral<std::uint64_t>();
    r.level = input.ConsumeIntegral<std::uint16_t>();
    r.kind = static_cast<Kind>(input.ConsumeIntegralInRange<int>(1, 6));
    r.flags = input.ConsumeIntegral<std::uint8_t>();
    return r;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    FuzzedDataProvider input(data, bytes);
    const TraceSettings s = settings(input);
    const LineFormatter formatter(s, input.ConsumeIntegral<std::uint32_t>());
    ByteBuffer out;
    while (input.remaining_bytes()) {
        const std::string track = formatter.track(input.ConsumeIntegral<std::uint32_t>());
        const Record r = record(input);
        const std::string name_json = name(input), args = members(input);
        const std::string error = input.ConsumeBool() ? json_string(input) : "";
        const auto start = input.ConsumeIntegral<std::uint64_t>();
        const auto end = input.ConsumeIntegralInRange<std::uint64_t>(start, UINT64_MAX);
        formatter.line(out, r, track, {name_json, args, error}, start, end);
        formatter.track_name(out, input.ConsumeIntegral<std::uint32_t>(),
                             input.ConsumeRandomLengthString(40));
    }
    const auto number = [&] { return input.ConsumeIntegral<std::int64_t>(); };
    const ClockKeeping keeping{1, 0, number(), number(), number()};
    formatter.header(out, 1, "tsc", 7, {}, keeping);
    formatter.clocks(out, {number(), number(), input.ConsumeIntegral<std::uint64_t>(), keeping});
    LineCounts lines{};
    lines.fill(UINT64_MAX);
    formatter.footer(out, lines, {UINT64_MAX, 1, 2, 3, 4}, UINT64_MAX, 0,
                     {"exception", std::string(reinterpret_cast<const char*>(data), bytes), 9, 255, 7, 8}, 3,
                     keeping);
    require_lines(out.view());
    out.clear();
    formatter.opening(out);
    if (out.view().substr(0, 2) != "[\n") fail("no opening", out.view());
    require_lines(out.view().substr(2));
    return 0;
}
