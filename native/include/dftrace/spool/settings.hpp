// What a process was told about its trace; kept in the spool so that another can finish it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

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
    std::uint64_t epoch_offset_ns = 0;  // of the process that began the run; from the caller 0 for one's own
    Compression compression = Compression::gzip;
    int compression_level = 0;  // 0: the codec's choice here
    bool epoch_us = false;      // integer epoch microseconds instead of relative nanoseconds
    bool ids = true;            // write p_idx and level
    bool user_args = true;
    std::uint64_t block_bytes = 1 << 20;
    std::uint32_t flush_interval_ms = 1000;
    std::string spool_dir;
    std::uint64_t spool_bytes = 256u << 20;
    bool wait_on_overflow = false;
    std::uint32_t finish_timeout_ms = 60'000;  // for a file system that does not answer at the end
    std::uint32_t file_mode = 0600;            // of the trace files
    std::uint64_t max_file_bytes = 0;          // 0: no limit; else the trace goes on in another part
    std::uint32_t max_files = 0;               // parts to keep, 0 for all
    bool flight_recorder = false;              // keep the last records in the spool, write when asked
    std::uint64_t flight_ns = 0;               // of these, only what is not older; 0 for all that fit
    std::uint32_t lines_hz = 0;                // samples of stacks a second, 0 for none
    bool lines_files = true;                   // they tell of files and lines
    std::uint32_t live_file_ms = 0;            // between two of `LiveFile`, 0 for none
    std::string lines_roots;                   // below which files are told, see `CodePlaces`

    // As `key NUL value NUL ...`, and back.
    std::string encode() const;
    static TraceSettings decode(std::string_view encoded);
};

enum class SettingFrom : std::uint8_t {
    caller,       // who begins the run
    caller_path,  // the same: a path, which need not be text
    here,         // worked out from others
};
enum class SettingKept : std::uint8_t {
    in_spool,        // whoever completes the trace needs it
    in_spool_later,  // the same, but spools of before it was there are read, too
    nowhere,
};

// What is read from the caller, and what the spool keeps, follows this table: a new setting is a member
// above and a row here.
struct SettingField {
    using Member = std::variant<std::string TraceSettings::*, bool TraceSettings::*, int TraceSettings::*,
                                std::uint32_t TraceSettings::*, std::uint64_t TraceSettings::*,
                                Compression TraceSettings::*>;
    const char* key;
    Member member;
    SettingFrom from;
    SettingKept kept;
    const char* spool_key = key;  // under which the spool has it
};

inline constexpr SettingField setting_fields[] = {
    {"prefix", &TraceSettings::prefix, SettingFrom::caller_path, SettingKept::in_spool},
    {"host", &TraceSettings::host, SettingFrom::caller, SettingKept::in_spool},
    {"host_hash", &TraceSettings::host_hash, SettingFrom::here, SettingKept::in_spool},
    {"run", &TraceSettings::run, SettingFrom::caller, SettingKept::in_spool},
    {"shown_pid", &TraceSettings::shown_pid, SettingFrom::caller, SettingKept::in_spool},
    {"process_name_json", &TraceSettings::process_name_json, SettingFrom::caller, SettingKept::in_spool,
     "process_name"},
    {"header_json", &TraceSettings::header_json, SettingFrom::caller, SettingKept::in_spool, "header"},
    {"cwd_json", &TraceSettings::cwd_json, SettingFrom::caller, SettingKept::in_spool, "cwd"},
    {"command_json", &TraceSettings::command_json, SettingFrom::caller, SettingKept::in_spool, "command"},
    {"time_base_us", &TraceSettings::time_base_us, SettingFrom::caller, SettingKept::in_spool},
    {"epoch_offset_ns", &TraceSettings::epoch_offset_ns, SettingFrom::caller, SettingKept::in_spool},
    {"compression", &TraceSettings::compression, SettingFrom::caller, SettingKept::in_spool},
    {"compression_level", &TraceSettings::compression_level, SettingFrom::caller, SettingKept::in_spool},
    {"epoch_us", &TraceSettings::epoch_us, SettingFrom::caller, SettingKept::in_spool},
    {"ids", &TraceSettings::ids, SettingFrom::caller, SettingKept::in_spool},
    {"user_args", &TraceSettings::user_args, SettingFrom::caller, SettingKept::in_spool},
    {"block_bytes", &TraceSettings::block_bytes, SettingFrom::caller, SettingKept::in_spool},
    {"flush_interval_ms", &TraceSettings::flush_interval_ms, SettingFrom::caller, SettingKept::nowhere},
    {"spool_dir", &TraceSettings::spool_dir, SettingFrom::caller_path, SettingKept::nowhere},
    {"spool_bytes", &TraceSettings::spool_bytes, SettingFrom::caller, SettingKept::nowhere},
    {"wait_on_overflow", &TraceSettings::wait_on_overflow, SettingFrom::caller, SettingKept::nowhere},
    {"finish_timeout_ms", &TraceSettings::finish_timeout_ms, SettingFrom::caller, SettingKept::nowhere},
    {"lines_hz", &TraceSettings::lines_hz, SettingFrom::caller, SettingKept::in_spool_later},
    {"file_mode", &TraceSettings::file_mode, SettingFrom::caller, SettingKept::in_spool_later},
    {"max_file_bytes", &TraceSettings::max_file_bytes, SettingFrom::caller, SettingKept::in_spool},
    {"max_files", &TraceSettings::max_files, SettingFrom::caller, SettingKept::in_spool},
    {"flight_recorder", &TraceSettings::flight_recorder, SettingFrom::caller, SettingKept::in_spool},
    {"flight_ns", &TraceSettings::flight_ns, SettingFrom::caller, SettingKept::in_spool},
    {"live_file_ms", &TraceSettings::live_file_ms, SettingFrom::caller, SettingKept::nowhere},
    {"lines_files", &TraceSettings::lines_files, SettingFrom::caller, SettingKept::nowhere},
    {"lines_roots", &TraceSettings::lines_roots, SettingFrom::caller_path, SettingKept::nowhere},
};

// The process id that the trace shows.
std::uint32_t shown_pid(const TraceSettings& settings, std::uint32_t pid);
// `<prefix>-<host>-<pid>`: what the files of a process begin with.
std::string file_stem(const TraceSettings& settings, std::uint32_t pid);

}  // namespace dftrace
