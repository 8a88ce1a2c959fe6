// JSON lines, written with as little work a line as the format allows.
#include "dftrace/writing/line_formatter.hpp"

#include <bit>
#include <charconv>
#include <cstring>
#include <initializer_list>

#include "dftrace/text/hash.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

constexpr char digit_pairs[] =
    "0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546"
    "4748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293"
    "949596979899";

// Names and arguments are short: a call of memcpy would take longer than the copying.
inline char* put(char* at, std::string_view text) {
    const char* const from = text.data();
    const std::size_t bytes = text.size();
    if (bytes >= 16 && bytes <= 64) {
        std::memcpy(at, from, 16);
        if (bytes > 32) {
            std::memcpy(at + 16, from + 16, 16);
            std::memcpy(at + bytes - 32, from + bytes - 32, 16);
        }
        std::memcpy(at + bytes - 16, from + bytes - 16, 16);
        return at + bytes;
    }
    if (bytes >= 8 && bytes < 16) {
        std::memcpy(at, from, 8);
        std::memcpy(at + bytes - 8, from + bytes - 8, 8);
        return at + bytes;
    }
    return at + text.copy(at, bytes);  // no memcpy: an empty text may have no address
}

template <std::size_t n>
inline char* put(char* at, const char (&text)[n]) {
    std::memcpy(at, text, n - 1);
    return at + n - 1;
}

constexpr std::uint64_t powers_of_ten[] = {0,
                                           10,
                                           100,
                                           1'000,
                                           10'000,
                                           100'000,
                                           1'000'000,
                                           10'000'000,
                                           100'000'000,
                                           1'000'000'000,
                                           10'000'000'000,
                                           100'000'000'000,
                                           1'000'000'000'000,
                                           10'000'000'000'000,
                                           100'000'000'000'000,
                                           1'000'000'000'000'000,
                                           10'000'000'000'000'000,
                                           100'000'000'000'000'000,
                                           1'000'000'000'000'000'000,
                                           10'000'000'000'000'000'000u};

inline std::size_t decimals_of(std::uint64_t value) {
    // 1233 / 4096 is a little more than the logarithm of 2: one too few where the power is reached.
    const auto fewest = static_cast<std::size_t>(std::bit_width(value)) * 1233 >> 12;
    return fewest + (value >= powers_of_ten[fewest]);
}

inline void put_pair(char* at, unsigned value) { std::memcpy(at, digit_pairs + std::size_t{2} * value, 2); }

inline char* put_number(char* at, std::uint64_t value) {
    char* const end = at + decimals_of(value);
    char* begin = end;
    while (value >= 10'000) {
        const auto four = static_cast<unsigned>(value % 10'000);
        value /= 10'000;
        begin -= 4;
        put_pair(begin, four / 100);
        put_pair(begin + 2, four % 100);
    }
    auto rest = static_cast<unsigned>(value);
    if (rest >= 100) {
        begin -= 2;
        put_pair(begin, rest % 100);
        rest /= 100;
    }
    if (rest >= 10)
        put_pair(begin - 2, rest);
    else
        begin[-1] = static_cast<char>('0' + rest);
    return end;
}

// Nanoseconds as microseconds with exactly three decimals.
inline char* put_micros(char* at, std::uint64_t ns) {
    const std::uint64_t us = ns / 1000;
    const auto rest = static_cast<unsigned>(ns - us * 1000);
    at = put_number(at, us);
    *at++ = '.';
    *at++ = static_cast<char>('0' + rest / 100);
    put_pair(at, rest % 100);
    return at + 2;
}

// Everything of a line that does not come from the caller's texts fits in this.
constexpr std::size_t fixed_bytes = 512;

}  // namespace

LineFormatter::LineFormatter(const TraceSettings& settings, std::uint32_t pid)
    : settings_(settings), pid_(pid), base_ns_(settings.time_base_us * 1000), own_track_(track(pid)) {
    args_open_ = "\"args\":{\"hhash\":\"" + settings.host_hash + "\"";
}

std::string LineFormatter::track(std::uint32_t tid) const {
    return ",\"pid\":" + std::to_string(pid_) + ",\"tid\":" + std::to_string(tid);
}

char* LineFormatter::put_time(char* at, std::uint64_t start_ns) const {
    at = put(at, ",\"ts\":");
    if (settings_.epoch_us) return put_number(at, start_ns / 1000);
    // A moment before the base cannot be told (Perfetto drops negative times).
    return put_micros(at, start_ns > base_ns_ ? start_ns - base_ns_ : 0);
}

void LineFormatter::line(ByteBuffer& out, const Record& r, std::string_view track, const RecordText& text,
                         std::uint64_t start_ns, std::uint64_t end_ns) const {
    char* at = out.reserve(fixed_bytes + text.name.size() + text.args.size() + text.error.size() +
                           track.size() + args_open_.size());
    at = put(at, "{\"id\":");
    at = put_number(at, r.kind == Kind::flow_out || r.kind == Kind::flow_in ? r.value : r.id);
    *at++ = ',';
    at = put(at, text.name);
    at = put(at, track);
    if (r.kind == Kind::metadata) {
        at = put(at, ",\"ph\":\"M\",");
        at = put(at, args_open_);
        at = put(at, text.args);
        at = put(at, "}}\n");
        out.commit_line(at);
        return;
    }
    at = put_time(at, start_ns);
    switch (r.kind) {
        case Kind::span:
            if (r.flags & RecordFlag::unfinished) {
                at = put(at, ",\"ph\":\"B\",");
                break;
            }
            at = put(at, ",\"dur\":");
            at = settings_.epoch_us ? put_number(at, end_ns / 1000 - start_ns / 1000)
                                    : put_micros(at, end_ns - start_ns);
            at = put(at, ",\"ph\":\"X\",");
            break;
        case Kind::instant: at = put(at, ",\"ph\":\"i\",\"s\":\"t\","); break;
        case Kind::counter:
            at = put(at, ",\"ph\":\"C\",\"args\":{");
            // A counter's args are its series and nothing else.
            at = put(at, text.args.empty() ? text.args : text.args.substr(1));
            at = put(at, "}}\n");
            out.commit_line(at);
            return;
        case Kind::flow_out:
            at = put(at, ",\"ph\":\"s\"}\n");
            out.commit_line(at);
            return;
        case Kind::flow_in:
            at = put(at, ",\"ph\":\"f\",\"bp\":\"e\"}\n");
            out.commit_line(at);
            return;
        case Kind::metadata:
        case Kind::lane_name:
        case Kind::profile: return;
    }
    at = put(at, args_open_);
    if (settings_.ids) {
        at = put(at, ",\"p_idx\":");
        at = put_number(at, r.parent);
        at = put(at, ",\"level\":");
        at = put_number(at, r.level);
    }
    if (r.flags & RecordFlag::has_count) {
        at = put(at, ",\"count\":");
        at = put_number(at, r.value);
    }
    if (r.flags & RecordFlag::unfinished) at = put(at, ",\"unfinished\":true");
    if (!text.error.empty()) {
        at = put(at, ",\"error\":");
        at = put(at, text.error);
    }
    at = put(at, text.args);
    at = put(at, "}}\n");
    out.commit_line(at);
}

void LineFormatter::profile(ByteBuffer& out, const Record& r, std::string_view args,
                            std::uint64_t start_ns) const {
    const std::string at = track(r.lane);
    const auto tell = [&](std::string_view name, std::string_view members) {
        char* put_at = out.reserve(fixed_bytes + at.size() + args_open_.size() + members.size());
        put_at = put(put_at, "{\"name\":\"");
        put_at = put(put_at, name);
        put_at = put(put_at, "\",\"cat\":\"stack\",\"id\":");
        put_at = put_number(put_at, r.id);
        put_at = put(put_at, at);
        put_at = put_time(put_at, start_ns);
        put_at = put(put_at, ",\"ph\":\"P\",");
        put_at = put(put_at, args_open_);
        put_at = put(put_at, members);
        put_at = put(put_at, "}}\n");
        out.commit_line(put_at);
    };
    if (r.flags & RecordFlag::begins_profile)
        tell("Profile", ",\"hz\":" + std::to_string(settings_.lines_hz) +
                            ",\"data\":{\"startTime\":" + std::to_string(r.value) + "}");
    tell("ProfileChunk", args);
}

}  // namespace dftrace
