// Reading trace files back as any other tool would, and what holds for every complete one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "json_reader.hpp"

// One line of a trace. The texts lie in what was read.
struct TraceEvent {
    std::string_view line;
    std::string_view name;
    std::string_view cat;
    std::string_view ph;
    bool has_id = false;
    std::uint64_t id = 0;
    std::uint32_t pid = 0;
    std::uint32_t tid = 0;
    bool has_ts = false;
    std::uint64_t ts = 0;  // nanoseconds when written with three decimals, microseconds when whole
    bool has_dur = false;
    std::uint64_t dur = 0;
    std::vector<JsonMember> args;

    // Raw JSON of an argument, empty if there is none.
    std::string_view arg(std::string_view key) const;
    std::uint64_t number(std::string_view key) const;
};

struct Trace {
    std::string path;
    std::string text;        // plain
    std::size_t blocks = 0;  // gzip members or zstd frames

    // Calls for every line behind the opening bracket; throws BadJson.
    void each(const std::function<void(const TraceEvent&)>& seen) const;
    std::vector<TraceEvent> events() const&;
    // Events with this ph, and how many there are.
    std::vector<TraceEvent> of(std::string_view ph) const&;
    std::size_t count(std::string_view ph) const;
    // Their texts would be gone with the trace.
    std::vector<TraceEvent> events() && = delete;
    std::vector<TraceEvent> of(std::string_view ph) && = delete;
};

// Bytes of a file; throws std::runtime_error.
std::string file_bytes(const std::string& path);
// The plain blocks of `bytes`, compressed as the suffix of `path` says; throws std::runtime_error.
std::vector<std::string> plain_blocks(const std::string& path, std::string_view bytes);

// Reads a trace, complete or not: it begins right and every block holds whole lines.
Trace read_trace(const std::string& path);

// Checks what holds for every complete trace: ids are unique, slices of a track nest, the footer
// is last, says `ended`, and its counts are those of the lines. Returns the footer's numbers.
struct Footer {
    std::map<std::string, std::uint64_t> numbers;
    std::uint64_t number(const std::string& key) const { return numbers.at(key); }
    // 0 for what the footer tells only when there is something to tell.
    std::uint64_t told(const std::string& key) const { return numbers.count(key) ? numbers.at(key) : 0; }
};
Footer check_complete(const Trace& trace, std::string_view ended);

// Checks that on every track any two slices nest or do not overlap.
struct Slice {
    std::uint64_t start;
    std::uint64_t end;
    std::uint64_t id;
};
void check_nesting(std::map<std::uint32_t, std::vector<Slice>>& tracks);
