// What is open, in few bytes.
#include "dftrace/reading/live_text.hpp"

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "dftrace/text/json_parts.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

constexpr std::size_t most_name_bytes = 80;
constexpr std::size_t most_host_bytes = 255;
constexpr std::size_t most_digits = 19;
constexpr std::size_t most_frames = 4;
constexpr std::size_t most_frame_bytes = 160;

void add_text(std::string& out, const char* key, std::string_view text, std::size_t most) {
    out.append("\"").append(key).append("\":");
    append_json_string(out, text.substr(0, most));
}

void add_number(std::string& out, const char* key, std::uint64_t number) {
    out.append("\"").append(key).append("\":").append(std::to_string(number));
}

bool is_whole(std::string_view value) noexcept {
    if (value.starts_with('-')) value.remove_prefix(1);
    return !value.empty() && value.size() < most_digits &&
           value.find_first_not_of("0123456789") == value.npos;
}

// `,"key":value` where that is a whole number.
void add_whole(std::string& out, const char* key, std::string_view value) {
    if (is_whole(value)) out.append(",\"").append(key).append("\":").append(value);
}

std::uint64_t before(std::uint64_t now, std::uint64_t then) noexcept { return now > then ? now - then : 0; }

// Outermost first, and behind them what a task began last.
std::vector<const LiveSpan*> open_of(const LiveThread& thread) {
    std::vector<const LiveSpan*> open;
    for (const LiveSpan& span : thread.open) open.push_back(&span);
    if (!thread.tasks.empty())
        open.push_back(&*std::ranges::max_element(thread.tasks, {}, &LiveSpan::start_ns));
    return open;
}

void add_span(std::string& out, const LiveSpan& span, std::uint64_t now_ns) {
    out += '{';
    add_text(out, "name", span.name ? span.name->name : "?", most_name_bytes);
    out += ',';
    add_text(out, "cat", span.name ? span.name->category : "?", most_name_bytes);
    out += ',';
    add_number(out, "for_ns", before(now_ns, span.start_ns));
    const std::string_view group = json_member(span.args, "group");
    if (group.starts_with('"') && group.size() <= most_name_bytes) out.append(",\"group\":").append(group);
    for (const char* key : {"nth", "seq", "peer"}) add_whole(out, key, json_member(span.args, key));
    out += '}';
}

// The innermost frames.
void add_stack(std::string& out, const LiveThread& thread, std::uint64_t now_ns) {
    std::string_view frames = json_member(thread.stack, "stack");
    if (!frames.starts_with('[')) return;
    frames.remove_prefix(1);
    std::string told;
    for (std::size_t count = 0; count < most_frames; ++count) {
        const std::string_view frame = next_json_part(frames);
        if (frame.empty() || frame.size() > most_frame_bytes) break;
        told.append(told.empty() ? "" : ",").append(frame);
    }
    if (told.empty()) return;
    out.append(",\"stack\":[").append(told).append("],");
    add_number(out, "stack_for_ns", before(now_ns, thread.stack_since_ns));
}

std::string text_of(const LiveThread& thread, std::uint64_t now_ns, std::size_t most_spans, bool stack) {
    const std::vector<const LiveSpan*> open = open_of(thread);
    std::uint64_t moved_ns = thread.last_ns.value_or(0);
    for (const LiveSpan* span : open) moved_ns = std::max(moved_ns, span->start_ns);
    std::string out = "{";
    add_number(out, "tid", thread.tid);
    out += ',';
    add_text(out, "name", thread.name, most_name_bytes);
    out += ',';
    add_number(out, "records", thread.records);
    out += ',';
    add_number(out, "depth", open.size());
    if (moved_ns) {
        out += ',';
        add_number(out, "quiet_ns", before(now_ns, moved_ns));
    }
    out += ",\"open\":[";
    for (std::size_t at = open.size() - std::min(most_spans, open.size()); at < open.size(); ++at) {
        if (out.back() != '[') out += ',';
        add_span(out, *open[at], now_ns);
    }
    out += ']';
    if (stack) add_stack(out, thread, now_ns);
    out += '}';
    return out;
}

// With all there is, or with less of it; nothing where not even the innermost span has room.
std::optional<std::string> text_within(const LiveThread& thread, std::uint64_t now_ns, std::size_t room) {
    std::size_t spans = thread.open.size() + 1;
    for (bool stack : {true, false}) {
        std::string text = text_of(thread, now_ns, spans, stack);
        if (text.size() <= room) return text;
    }
    while (spans > 1) {
        spans -= (spans + 3) / 4;
        std::string text = text_of(thread, now_ns, spans, false);
        if (text.size() <= room) return text;
    }
    return std::nullopt;
}

// The value that an argument had last: in the main thread, or else in any.
std::string_view newest(const LiveSpool& seen, const char* key) {
    for (const bool main_alone : {true, false}) {
        std::string_view found;
        std::uint64_t found_ns = 0;
        const auto look = [&](std::string_view args, std::uint64_t ns) {
            const std::string_view value = json_member(args, key);
            if (!is_whole(value) || (!found.empty() && ns <= found_ns)) return;
            found = value;
            found_ns = ns;
        };
        for (const LiveThread& thread : seen.threads) {
            if (main_alone && thread.tid != seen.pid) continue;
            for (const auto* spans : {&thread.open, &thread.tasks})
                for (const LiveSpan& span : *spans) look(span.args, span.start_ns);
            for (const auto& [ns, args] : thread.newest_args) look(args, ns);
        }
        if (!found.empty()) return found;
    }
    return {};
}

// The main thread, and those with an open span: who began one last comes first.
std::vector<const LiveThread*> worth_telling(const LiveSpool& seen) {
    std::vector<const LiveThread*> threads;
    for (const LiveThread& thread : seen.threads)
        if (!thread.ended && (thread.tid == seen.pid || !open_of(thread).empty())) threads.push_back(&thread);
    const auto moved_ns = [](const LiveThread* thread) {
        const std::vector<const LiveSpan*> open = open_of(*thread);
        return open.empty() ? 0 : open.back()->start_ns;
    };
    std::ranges::stable_sort(threads, [&](const LiveThread* one, const LiveThread* other) {
        const bool is_main = one->tid == seen.pid;
        if (is_main != (other->tid == seen.pid)) return is_main;
        return moved_ns(one) > moved_ns(other);
    });
    return threads;
}

}  // namespace

std::string live_text(const LiveSpool& seen, std::uint64_t every_ms, std::uint64_t wall_ns) {
    std::string out = "{\"kind\":\"dftrace live\",\"format\":1,";
    add_text(out, "host", seen.host, most_host_bytes);
    out += ',';
    add_text(out, "run", seen.run, most_name_bytes);
    for (const auto& [key, number] : std::initializer_list<std::pair<const char*, std::uint64_t>>{
             {"pid", seen.pid},
             {"parent_pid", seen.parent_pid},
             {"every_ms", every_ms},
             {"wall_ns", wall_ns},
             {"lives_ns", before(seen.now_ns, seen.started_ns)},
             {"dropped", seen.losses.dropped},
             {"write_error", seen.write_error}}) {
        out += ',';
        add_number(out, key, number);
    }
    for (const char* key : {"rank", "world_size"}) add_whole(out, key, json_member(seen.header, key));
    for (const char* key : {"epoch", "step"}) add_whole(out, key, newest(seen, key));
    out += ",\"threads\":[";
    constexpr std::string_view end = "],\"threads_left_out\":4294967295}\n";
    std::size_t left_out = 0;
    for (const LiveThread* thread : worth_telling(seen)) {
        const std::size_t taken = out.size() + 1 + end.size();
        const auto text =
            text_within(*thread, seen.now_ns, most_live_bytes - std::min(taken, most_live_bytes));
        if (!text) {
            ++left_out;
            continue;
        }
        if (out.back() != '[') out += ',';
        out += *text;
    }
    out += "],";
    add_number(out, "threads_left_out", left_out);
    return out + "}\n";
}

}  // namespace dftrace
