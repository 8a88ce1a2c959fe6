// The first and the last lines of a trace: who wrote it, what its names mean, and what became of it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <string_view>

#include "dftrace/text/hash.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/writing/line_formatter.hpp"

namespace dftrace {

namespace {

// `,"ntp":{...}`; nothing where the kernel has not said it. What a damaged spool says is a number, too.
std::string json_of(const ClockKeeping& keeping) {
    if (!keeping.known) return {};
    constexpr std::int64_t none = 0, most = std::int64_t{1} << 40;
    const long long thousandths = std::clamp(keeping.frequency, -most, most) * 1000 / 65536;
    const long long size = std::abs(thousandths);
    char ppm[32];
    std::snprintf(ppm, sizeof ppm, "%s%lld.%03lld", thousandths < 0 ? "-" : "", size / 1000, size % 1000);
    return std::string(",\"ntp\":{\"synchronised\":") + (keeping.synchronised ? "true" : "false") +
           ",\"max_error_us\":" + std::to_string(std::max(keeping.max_error_us, none)) +
           ",\"estimated_error_us\":" + std::to_string(std::max(keeping.estimated_error_us, none)) +
           ",\"frequency_ppm\":" + ppm + "}";
}

}  // namespace

void LineFormatter::opening(ByteBuffer& out) const {
    out.append("[\n");
    process_name(out, settings_.process_name_json);
}

void LineFormatter::process_name(ByteBuffer& out, std::string_view name_json) const {
    out.append("{\"name\":\"process_name\",\"cat\":\"dftrace\"");
    out.append(own_track_);
    out.append(",\"ph\":\"M\",\"args\":{\"name\":");
    out.append(name_json);
    out.append("}}\n");
}

// Viewers go by the last name of a process.
void LineFormatter::late_process_name(ByteBuffer& out, const LatePlace& place) const {
    const std::uint32_t rank = place.rank.load(std::memory_order_acquire);
    const std::string& name = settings_.process_name_json;
    if (!rank) return;
    for (const std::string_view before : {std::string_view("\"python"), std::string_view("\"rank ")}) {
        if (!name.starts_with(before)) continue;
        const std::size_t rest = name.find_first_not_of("0123456789", before.size());
        if (rest != std::string::npos)
            process_name(out, "\"rank " + std::to_string(rank - 1) + name.substr(rest));
    }
}

void LineFormatter::header(ByteBuffer& out, std::uint32_t parent_pid, const char* clock, std::uint32_t part,
                           const ProcessIdentity& process, const ClockKeeping& keeping) const {
    std::string host;
    append_json_string(host, settings_.host);
    std::string text =
        "{\"name\":\"dftrace\",\"cat\":\"dftrace\"" + own_track_ + ",\"ph\":\"M\"," + args_open_;
    text += ",\"format\":1,\"host\":" + host + ",\"pid\":" + std::to_string(pid_);
    text += ",\"ppid\":" + std::to_string(parent_pid) + ",\"run\":\"" + settings_.run + "\"";
    text += ",\"time_base_us\":" + std::to_string(settings_.epoch_us ? 0 : settings_.time_base_us);
    text += settings_.epoch_us ? ",\"timestamps\":\"epoch_us\"" : ",\"timestamps\":\"relative\"";
    text += std::string(",\"clock\":\"") + clock + "\"" + settings_.header_json;
    // Where /proc is not there to be asked, neither is known.
    if (!process.boot_id.empty()) {
        text += ",\"boot_id\":";
        append_json_string(text, process.boot_id);
    }
    if (process.pid_namespace) text += ",\"pid_namespace\":" + std::to_string(process.pid_namespace);
    if (process.start) text += ",\"process_start\":" + std::to_string(process.start);
    text += ",\"clock_offset_ns\":" + std::to_string(static_cast<std::int64_t>(settings_.epoch_offset_ns));
    text += json_of(keeping);
    if (part) text += ",\"part\":" + std::to_string(part);
    out.append(text + "}}\n");
    hash_line(out, "HH", host);
    hash_line(out, "FH", settings_.cwd_json);
    hash_line(out, "SH", settings_.command_json);
}

void LineFormatter::clocks(ByteBuffer& out, const HostClocks& clocks) const {
    if (!clocks.boottime_ns) return;
    constexpr std::uint64_t most = INT64_MAX;  // beyond it, as in a damaged spool, viewers take none
    out.append("{\"name\":\"clock\",\"cat\":\"dftrace\"" + own_track_ + ",\"ph\":\"M\"," + args_open_ +
               ",\"boottime_ns\":" + std::to_string(clocks.boottime_ns) +
               ",\"realtime_ns\":" + std::to_string(clocks.realtime_ns) +
               ",\"width_ns\":" + std::to_string(std::min(clocks.width_ns, most)) + "}}\n");
}

void LineFormatter::hash_line(ByteBuffer& out, std::string_view kind, std::string_view name_json) const {
    if (name_json.size() < 2) return;
    // dftracer hashes the text itself, without its quotes.
    const std::string hash =
        kind == "HH" ? settings_.host_hash : hash_hex(name_json.substr(1, name_json.size() - 2));
    for (const std::string_view part :
         {std::string_view("{\"name\":\""), kind, std::string_view("\",\"cat\":\"dftracer\""),
          std::string_view(own_track_), std::string_view(",\"ph\":\"M\","), std::string_view(args_open_),
          std::string_view(",\"name\":"), name_json, std::string_view(",\"value\":\""),
          std::string_view(hash), std::string_view("\"}}\n")})
        out.append(part);
}

void LineFormatter::track_name(ByteBuffer& out, std::uint32_t tid, std::string_view name) const {
    std::string text =
        "{\"name\":\"thread_name\",\"cat\":\"dftrace\"" + track(tid) + ",\"ph\":\"M\",\"args\":{\"name\":";
    append_json_string(text, name);
    out.append(text + "}}\n");
}

void LineFormatter::index(ByteBuffer& out, std::string_view members) const {
    for (const std::string_view part : {std::string_view("{\"name\":\"index\",\"cat\":\"dftrace\""),
                                        std::string_view(own_track_), std::string_view(",\"ph\":\"M\","),
                                        std::string_view(args_open_), members, std::string_view("}}\n")})
        out.append(part);
}

std::uint64_t events_of(const LineCounts& lines) noexcept {
    std::uint64_t events = lines[0];  // spans without an end
    for (const Kind kind :
         {Kind::span, Kind::instant, Kind::counter, Kind::metadata, Kind::flow_out, Kind::flow_in})
        events += lines[static_cast<std::size_t>(kind)];
    return events;
}

void LineFormatter::footer(ByteBuffer& out, const LineCounts& lines, const Losses& losses,
                           std::uint64_t plain_bytes, std::uint64_t file_bytes, const Ending& ending,
                           std::uint32_t part, const ClockKeeping& keeping) const {
    const auto count = [&lines](Kind kind) { return lines[static_cast<std::size_t>(kind)]; };
    const std::size_t bytes_before = out.size();
    if (ending.place) late_process_name(out, *ending.place);
    plain_bytes += out.size() - bytes_before;
    const std::uint64_t flows = count(Kind::flow_out) + count(Kind::flow_in);
    std::string text = "{\"name\":\"end\",\"cat\":\"dftrace\"" + own_track_ + ",\"ph\":\"M\"," + args_open_;
    const auto member = [&text](std::string_view key, std::uint64_t value) {
        text.append(",\"").append(key).append("\":").append(std::to_string(value));
    };
    member("events", events_of(lines));
    member("spans", count(Kind::span));
    member("instants", count(Kind::instant));
    member("counters", count(Kind::counter));
    member("flows", flows);
    member("metadata", count(Kind::metadata));
    member("unfinished", lines[0]);
    if (lines[samples_slot]) member("samples", lines[samples_slot]);
    member("dropped", losses.dropped);
    member("waits", losses.waits);
    member("unmatched_stops", losses.unmatched_stops);
    member("args_sanitised", losses.args_sanitised);
    member("bytes", plain_bytes);
    member("file_bytes", file_bytes);
    member("drain_cpu_us", losses.drain_cpu_us);
    text.append(",\"ended\":\"").append(ending.how).append("\"");
    if (part || ending.how == "rotated") member("part", part);
    if (ending.earlier_events) member("earlier_events", ending.earlier_events);
    if (!ending.error.empty()) {
        text.append(",\"error\":");
        append_json_string(text, ending.error);
    }
    if (ending.signal) member("signal", static_cast<std::uint64_t>(ending.signal));
    if (ending.exit_status >= 0) member("exit_status", static_cast<std::uint64_t>(ending.exit_status));
    if (ending.write_error) {
        text.append(",\"write_error\":");
        append_json_string(text, std::strerror(ending.write_error));
    }
    if (ending.damaged) member("damaged", ending.damaged);
    if (ending.overwritten) member("overwritten", ending.overwritten);
    if (ending.alive_us) member("alive_us", ending.alive_us);
    if (!ending.layout.empty()) {
        text.append(",\"layout\":");
        append_json_string(text, ending.layout);
    }
    if (ending.place)
        for (const auto& [key, number] : ending.place->members()) member(key, number);
    text += json_of(keeping);
    out.append(text + "}}\n");
}

}  // namespace dftrace
