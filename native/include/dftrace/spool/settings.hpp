// What a process was told about its trace; kept in the spool so that another can finish it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace dftrace {

enum class Compression { none, gzip, zstd };

const char* name_of(Compression compression) noexcept;
const char* suffix_of(Compression compression) noexcept;  // ".pfw.gz", ...
Compression compression_from(std::string_view name);      // throws std::invalid_argument

struct TraceSettings {
    std::string prefix;  // directory and stem of the trace files
    std::string host;
    std::uint32_t shown_pid = 0;  // written instead of the operating system's, if not 0
    std::string host_hash;        // 16 hex digits
    std::string run;              // 32 hex digits, shared by all processes of a run
    std::string process_name_json;
    std::string header_json;  // further members of the header's args: `,"key":value...` or empty
    std::string cwd_json;
    std::string command_json;
    std::uint64_t time_base_us = 0;
    std::uint64_t epoch_offset_ns = 0;  // of the process that began the run, 0 for one's own
    Compression compression = Compression::gzip;
    int compression_level = 0;  // 0: the codec's choice here
    bool epoch_us = false;      // integer epoch microseconds instead of relative nanoseconds
    bool ids = true;            // write p_idx and level
    bool user_args = true;
    std::size_t block_bytes = 1 << 20;
    std::uint32_t flush_interval_ms = 1000;
    std::string spool_dir;
    std::size_t spool_bytes = 256u << 20;
    bool wait_on_overflow = false;
    std::uint32_t finish_timeout_ms = 60'000;  // for a file system that does not answer at the end
    std::uint32_t file_mode = 0600;            // of the trace files
    std::uint64_t max_file_bytes = 0;          // 0: no limit; else the trace goes on in another part
    std::uint32_t max_files = 0;               // parts to keep, 0 for all
    bool flight_recorder = false;              // keep the last records in the spool, write when asked
    std::uint64_t flight_ns = 0;               // of these, only what is not older; 0 for all that fit

    // As `key NUL value NUL ...`, and back.
    std::string encode() const;
    static TraceSettings decode(std::string_view encoded);
};

// The host's name as it stands in file names: anything but letters, digits and `._-` becomes `_`.
std::string host_name();

// FNV-1a of `text`, as 16 hexadecimal digits (the form of dftracer's hashes).
std::string hash_hex(std::string_view text);

// `text` as a JSON string with its quotes, written so that Perfetto reads it too. Bytes that are
// not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

// Length of the valid UTF-8 sequence at `at` (Unicode 15, table 3-7), or 0.
std::size_t utf8_length(std::string_view text, std::size_t at) noexcept;

}  // namespace dftrace
