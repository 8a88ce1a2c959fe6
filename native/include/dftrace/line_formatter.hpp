// Records to JSON lines, as docs/trace-format.md describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dftrace/byte_buffer.hpp"
#include "dftrace/record.hpp"
#include "dftrace/settings.hpp"

namespace dftrace {

// Process- and run-wide counts of the footer.
struct Losses {
    std::uint64_t dropped = 0;
    std::uint64_t waits = 0;
    std::uint64_t unmatched_stops = 0;
    std::uint64_t args_sanitised = 0;
    std::uint64_t drain_cpu_us = 0;
};

// What a record's ids stand for.
struct RecordText {
    std::string_view name;   // `"name":"forward","cat":"compute"`
    std::string_view args;   // `,"epoch":1`
    std::string_view error;  // `"ValueError"`
};

class LineFormatter {
  public:
    LineFormatter(const TraceSettings& settings, std::uint32_t pid);

    // `,"pid":P,"tid":T` of a track, to be kept by the caller.
    std::string track(std::uint32_t tid) const;

    // One line for the record; times in nanoseconds since the epoch.
    void line(ByteBuffer& out, const Record& record, std::string_view track, const RecordText& text,
              std::uint64_t start_ns, std::uint64_t end_ns) const;

    // `[` and the process's name: the first bytes of the file, in one piece, since Perfetto refuses
    // a first gzip member that holds only the bracket.
    void opening(ByteBuffer& out) const;
    void header(ByteBuffer& out, std::uint32_t parent_pid, const char* clock) const;
    void track_name(ByteBuffer& out, std::uint32_t tid, std::string_view name) const;
    void footer(ByteBuffer& out, const std::uint64_t (&lines)[8], const Losses& losses,
                std::uint64_t plain_bytes, std::uint64_t file_bytes, std::string_view ended) const;

  private:
    char* put_time(char* at, std::uint64_t start_ns) const;
    void hash_line(ByteBuffer& out, std::string_view kind, std::string_view name_json) const;

    const TraceSettings& settings_;
    std::uint32_t pid_;
    std::uint64_t base_ns_;
    std::string own_track_;
    std::string args_open_;  // `"args":{"hhash":"..."`
};

}  // namespace dftrace
