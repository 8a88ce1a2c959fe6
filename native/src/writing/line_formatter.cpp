// JSON lines, written with as little work a line as the format allows.
#include "dftrace/writing/line_formatter.hpp"

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

inline char* put(char* at, std::string_view text) {
    return at + text.copy(at, text.size());  // no memcpy: an empty text may have no address
}

template <std::size_t n>
inline char* put(char* at, const char (&text)[n]) {
    std::memcpy(at, text, n - 1);
    return at + n - 1;
}

inline char* put_number(char* at, std::uint64_t value) {
    char digits[20];
    char* begin = digits + sizeof digits;
    while (value >= 100) {
        begin -= 2;
        std::memcpy(begin, digit_pairs + 2 * (value % 100), 2);
        value /= 100;
    }
    if (value >= 10) {
        begin -= 2;
        std::memcpy(begin, digit_pairs + 2 * value, 2);
    } else {
        *--begin = static_cast<char>('0' + value);
    }
    const auto length = static_cast<std::size_t>(digits + sizeof digits - begin);
    std::memcpy(at, begin, length);
    return at + length;
}

// Nanoseconds as microseconds with exactly three decimals.
inline char* put_micros(char* at, std::uint64_t ns) {
    const std::uint64_t us = ns / 1000;
    const auto rest = static_cast<unsigned>(ns - us * 1000);
    at = put_number(at, us);
    *at++ = '.';
    *at++ = static_cast<char>('0' + rest / 100);
    std::memcpy(at, digit_pairs + 2 * (rest % 100), 2);
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
        case Kind::lane_name: return;
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

}  // namespace dftrace
