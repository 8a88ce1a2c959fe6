// Records to JSON lines, as docs/trace-format.md describes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dftrace/spool/record.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/text/byte_buffer.hpp"

namespace dftrace {

// How a trace, or a part of it, came to its end, as far as that is known.
struct Ending {
    std::string how;                // "finalize", "exit", "exception", "loader", "died", "reboot", "rotated"
    std::string error = {};         // type of the exception
    int signal = 0;                 // that killed the process, 0 for none or unknown
    int exit_status = -1;           // -1 for unknown
    std::uint64_t damaged = 0;      // pieces of the spool that could not be read
    std::uint64_t overwritten = 0;  // events that a flight recorder let go
    std::uint64_t alive_us = 0;     // when the process was last known to live, as `ts`; 0 for unknown
    std::string details = {};       // of the exception, for the dump: JSON members
    std::string layout = {};        // of the process among the ranks, where it became known late
    int write_error = 0;            // why the process could not write the rest itself; an errno
    std::uint64_t earlier_events = 0;  // in the parts before
    const LatePlace* place = nullptr;  // among the ranks, where it became known late
};

// Lines that are events.
std::uint64_t events_of(const LineCounts& lines) noexcept;

// What a record's ids stand for.
struct RecordText {
    std::string_view name;   // `"name":"forward","cat":"compute"`
    std::string_view args;   // `,"epoch":1`
    std::string_view error;  // `"ValueError"`
};

// Where there was no room for the name, or it is damaged: the line still has to be one.
inline constexpr std::string_view unknown_name = R"("name":"unknown","cat":"unknown")";

class LineFormatter {
  public:
    LineFormatter(const TraceSettings& settings, std::uint32_t pid);

    // `,"pid":P,"tid":T` of a track, to be kept by the caller.
    std::string track(std::uint32_t tid) const;

    // One line for the record; times in nanoseconds since the epoch.
    void line(ByteBuffer& out, const Record& record, std::string_view track, const RecordText& text,
              std::uint64_t start_ns, std::uint64_t end_ns) const;

    // Samples of a stack: a line, and before it one that begins their profile where this is the first.
    void profile(ByteBuffer& out, const Record& record, std::string_view args, std::uint64_t start_ns) const;

    // `[` and the process's name: the first bytes of the file, in one piece, since Perfetto refuses
    // a first gzip member that holds only the bracket.
    void opening(ByteBuffer& out) const;
    void header(ByteBuffer& out, std::uint32_t parent_pid, const char* clock, std::uint32_t part,
                const ProcessIdentity& process, const ClockKeeping& keeping) const;
    // Nothing where nobody has looked.
    void clocks(ByteBuffer& out, const HostClocks& clocks) const;
    void track_name(ByteBuffer& out, std::uint32_t tid, std::string_view name) const;
    // `members` as they stand behind others, each with a comma in front.
    void index(ByteBuffer& out, std::string_view members) const;
    void footer(ByteBuffer& out, const LineCounts& lines, const Losses& losses, std::uint64_t plain_bytes,
                std::uint64_t file_bytes, const Ending& ending, std::uint32_t part,
                const ClockKeeping& keeping) const;

  private:
    char* put_time(char* at, std::uint64_t start_ns) const;
    void hash_line(ByteBuffer& out, std::string_view kind, std::string_view name_json) const;
    void process_name(ByteBuffer& out, std::string_view name_json) const;
    void late_process_name(ByteBuffer& out, const LatePlace& place) const;

    const TraceSettings& settings_;
    std::uint32_t pid_;
    std::uint64_t base_ns_;
    std::string own_track_;
    std::string args_open_;  // `"args":{"hhash":"..."`
};

}  // namespace dftrace
