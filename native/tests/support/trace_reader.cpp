// Decompression, lines, and the rules for a complete trace.
#include "trace_reader.hpp"

#include <libdeflate.h>
#include <zstd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "check.hpp"
#include "dftrace/index/block_facts.hpp"

namespace {

std::uint64_t whole_number(std::string_view text) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
        throw BadJson("not a whole number: " + std::string(text));
    return value;
}

// `12.345` microseconds as nanoseconds, `12` as it stands.
std::uint64_t time_value(std::string_view text) {
    const auto point = text.find('.');
    if (point == std::string_view::npos) return whole_number(text);
    if (text.size() - point != 4) throw BadJson("a time has three decimals: " + std::string(text));
    return whole_number(text.substr(0, point)) * 1000 + whole_number(text.substr(point + 1));
}

std::string_view bare(std::string_view quoted) { return quoted.substr(1, quoted.size() - 2); }

TraceEvent event_of(std::string_view line) {
    TraceEvent event;
    event.line = line;
    for (const auto& [key, value] : json_members(line)) {
        if (key == "name") event.name = bare(value);
        if (key == "cat") event.cat = bare(value);
        if (key == "ph") event.ph = bare(value);
        if (key == "id") event.id = whole_number(value), event.has_id = true;
        if (key == "pid") event.pid = static_cast<std::uint32_t>(whole_number(value));
        if (key == "tid") event.tid = static_cast<std::uint32_t>(whole_number(value));
        if (key == "ts") event.ts = time_value(value), event.has_ts = true;
        if (key == "dur") event.dur = time_value(value), event.has_dur = true;
        if (key == "args") event.args = json_members(value);
    }
    return event;
}

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

std::vector<std::string> gzip_members(std::string_view bytes) {
    libdeflate_decompressor* decompressor = libdeflate_alloc_decompressor();
    std::vector<std::string> members;
    std::size_t room = 1 << 16;
    while (!bytes.empty()) {
        std::string plain(room, '\0');
        std::size_t used = 0, made = 0;
        const auto result = libdeflate_gzip_decompress_ex(decompressor, bytes.data(), bytes.size(),
                                                          plain.data(), plain.size(), &used, &made);
        if (result == LIBDEFLATE_INSUFFICIENT_SPACE) {
            room *= 2;
            continue;
        }
        if (result != LIBDEFLATE_SUCCESS) {
            libdeflate_free_decompressor(decompressor);
            throw std::runtime_error("gzip member " + std::to_string(members.size()) + " is broken");
        }
        plain.resize(made);
        members.push_back(std::move(plain));
        bytes.remove_prefix(used);
    }
    libdeflate_free_decompressor(decompressor);
    return members;
}

std::vector<std::string> zstd_frames(std::string_view bytes) {
    std::vector<std::string> frames;
    while (!bytes.empty()) {
        bytes.remove_prefix(std::min(dftrace::skippable_bytes(bytes), bytes.size()));
        const std::size_t used = ZSTD_findFrameCompressedSize(bytes.data(), bytes.size());
        const auto size = ZSTD_getFrameContentSize(bytes.data(), bytes.size());
        if (ZSTD_isError(used) || size == ZSTD_CONTENTSIZE_ERROR || size == ZSTD_CONTENTSIZE_UNKNOWN)
            throw std::runtime_error("zstd frame " + std::to_string(frames.size()) + " is broken");
        std::string plain(size, '\0');
        if (ZSTD_decompress(plain.data(), plain.size(), bytes.data(), used) != size)
            throw std::runtime_error("zstd frame " + std::to_string(frames.size()) + " is broken");
        frames.push_back(std::move(plain));
        bytes.remove_prefix(used);
    }
    return frames;
}

}  // namespace

std::string_view TraceEvent::arg(std::string_view key) const {
    for (const auto& member : args)
        if (member.key == key) return member.value;
    return {};
}

std::uint64_t TraceEvent::number(std::string_view key) const { return whole_number(arg(key)); }

void Trace::each(const std::function<void(const TraceEvent&)>& seen) const {
    std::string_view rest = text;
    rest.remove_prefix(std::min<std::size_t>(2, rest.size()));
    while (!rest.empty()) {
        const auto end = rest.find('\n');
        if (end == std::string_view::npos) throw BadJson("the last line has no end");
        seen(event_of(rest.substr(0, end)));
        rest.remove_prefix(end + 1);
    }
}

std::vector<TraceEvent> Trace::events() const& {
    std::vector<TraceEvent> all;
    each([&all](const TraceEvent& event) { all.push_back(event); });
    return all;
}

std::vector<TraceEvent> Trace::of(std::string_view ph) const& {
    std::vector<TraceEvent> some;
    each([&](const TraceEvent& event) {
        if (event.ph == ph) some.push_back(event);
    });
    return some;
}

std::size_t Trace::count(std::string_view ph) const { return of(ph).size(); }

std::string file_bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    std::ostringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
}

std::vector<std::string> plain_blocks(const std::string& path, std::string_view bytes) {
    if (ends_with(path, ".gz")) return gzip_members(bytes);
    if (ends_with(path, ".zst")) return zstd_frames(bytes);
    return {std::string(bytes)};
}

Trace read_trace(const std::string& path) {
    Trace trace{path, {}, 0};
    for (std::string& block : plain_blocks(path, file_bytes(path))) {
        CHECK(ends_with(block, "\n"));
        trace.text += std::exchange(block, {});
        ++trace.blocks;
    }
    constexpr std::string_view opening = "[\n{\"name\":\"process_name\",";
    CHECK_EQ(std::string_view(trace.text).substr(0, opening.size()), opening);
    return trace;
}

void check_nesting(std::map<std::uint32_t, std::vector<Slice>>& tracks) {
    for (auto& [tid, slices] : tracks) {
        std::sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
            return a.start != b.start ? a.start < b.start : a.end > b.end;
        });
        std::vector<Slice> open;
        for (const Slice& slice : slices) {
            while (!open.empty() && open.back().end <= slice.start) open.pop_back();
            if (!open.empty() && slice.end > open.back().end)
                check::failed(__FILE__, __LINE__,
                              "slices " + std::to_string(open.back().id) + " and " +
                                  std::to_string(slice.id) + " overlap on track " + std::to_string(tid));
            open.push_back(slice);
        }
    }
}

Footer check_complete(const Trace& trace, std::string_view ended) {
    std::map<std::string, std::uint64_t> counts;
    std::vector<std::uint64_t> ids;
    std::map<std::uint32_t, std::vector<Slice>> tracks;
    TraceEvent last;
    std::uint64_t footers = 0;
    trace.each([&](const TraceEvent& e) {
        const std::string_view ph = e.ph;
        const std::string kind = ph == "X"                ? "spans"
                                 : ph == "B"              ? "unfinished"
                                 : ph == "i"              ? "instants"
                                 : ph == "C"              ? "counters"
                                 : ph == "s" || ph == "f" ? "flows"
                                 : ph == "M" && e.has_id  ? "metadata"
                                                          : "";
        if (!kind.empty()) ++counts[kind];
        if (e.has_id && kind != "flows") ids.push_back(e.id);
        if (ph == "X") tracks[e.tid].push_back({e.ts, e.ts + e.dur, e.id});
        footers += e.name == "end" && e.cat == "dftrace";
        last = e;
    });
    CHECK_EQ(footers, 1);
    CHECK_EQ(last.name, "end");
    CHECK_EQ(last.arg("ended"), "\"" + std::string(ended) + "\"");
    std::uint64_t events = 0;
    for (const char* kind : {"spans", "unfinished", "instants", "counters", "flows", "metadata"}) {
        CHECK_EQ(last.number(kind), counts[kind]);
        events += counts[kind];
    }
    CHECK_EQ(last.number("events"), events);
    CHECK_EQ(last.number("bytes"), trace.text.size() - last.line.size() - 1);
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
    check_nesting(tracks);
    Footer footer;
    for (const auto& [key, value] : last.args)
        if (value.front() != '"' && value.front() != '{')
            footer.numbers[std::string(key)] = whole_number(value);
    return footer;
}
