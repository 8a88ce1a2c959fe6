// From records to the trace file: formats, gathers lines into blocks, writes, and marks the spool
// so that a block is never lost and never written twice, whenever the process dies.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dftrace/byte_buffer.hpp"
#include "dftrace/clock.hpp"
#include "dftrace/codec.hpp"
#include "dftrace/lanes.hpp"
#include "dftrace/line_formatter.hpp"
#include "dftrace/spool.hpp"
#include "dftrace/tables.hpp"
#include "dftrace/trace_file.hpp"

namespace dftrace {

// Synthetic tracks lie above every thread id that Linux gives (at most 2^22).
constexpr std::uint32_t first_task_lane = 0x40000000;
constexpr std::uint32_t first_overlap_lane = 0x50000000;
constexpr std::uint32_t first_logged_lane = 0x60000000;

// A thread as the writer knows it: whose records, on which tracks.
struct Track {
    std::uint32_t tid = 0;
    std::string name;
    std::string text;  // `,"pid":P,"tid":T`
    bool named = false;
    Lanes overlaps{false};
    Lanes logged{true};  // times given by the user, who meant them to nest
    std::vector<std::uint32_t> overlap_tids;
    std::vector<std::uint32_t> logged_tids;
};

class TraceWriter {
  public:
    TraceWriter(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid);

    // Formats records [unit->scan, limit) of `unit`; `scan` moves on. Stops early, returning
    // false, when a full block cannot be written.
    bool records(UnitHeader* unit, std::uint32_t& scan, std::uint32_t limit, Track& track,
                 const BlobTables& tables, const ClockMap& clock);
    // Writes what is gathered: from here on there are only unfinished spans. 0 or an errno.
    int end_records();
    // A span that never ended.
    void unfinished(const OpenSpan& span, Track& track, const BlobTables& tables, const ClockMap& clock);
    void name_track(Track& track);
    // Writes what is gathered. 0, or the errno of the failure: the block is kept for the next try.
    int flush();
    int finish(std::string_view ended, const Losses& losses);

    // Continues a file as the spool's marks say it stands; false if it cannot be.
    bool resume(const std::string& path);

    TraceStage stage() const noexcept { return stage_; }
    bool anything_to_write() const noexcept { return text_.size() != 0; }
    int last_error() const noexcept { return last_error_; }
    const TraceFile& file() const noexcept { return file_; }
    std::uint64_t lines_waiting() const noexcept;
    // Called with each unit whose records are in the file, after every successful write.
    std::function<void(UnitHeader*, std::uint32_t)> on_durable;

  private:
    void announce(const std::string& path);
    void one(const Record& record, Track& track, const BlobTables& tables, const ClockMap& clock);
    std::string_view lane_track(const Record& record, Track& track, std::uint64_t start_ns,
                                std::uint64_t end_ns);
    void count(Kind kind) noexcept { ++lines_[static_cast<std::size_t>(kind)]; }

    const TraceSettings& settings_;
    SpoolHeader& header_;
    LineFormatter formatter_;
    std::unique_ptr<BlockCodec> codec_;
    TraceFile file_;
    std::uint32_t parent_pid_;
    ByteBuffer text_;
    std::string block_;              // compressed, kept until it is written
    std::uint64_t lines_[8] = {};    // formatted lines by Kind
    std::uint64_t plain_bytes_ = 0;  // of everything written
    std::uint64_t written_lines_ = 0;
    bool opened_ = false;
    TraceStage stage_ = TraceStage::records;
    int last_error_ = 0;
    std::uint32_t lanes_made_ = 0;
    std::unordered_map<std::uint32_t, std::string> lane_texts_;
    std::vector<std::pair<UnitHeader*, std::uint32_t>> touched_;
};

// The process id that the trace shows.
std::uint32_t shown_pid(const TraceSettings& settings, std::uint32_t pid);
// `<prefix>-<host>-<pid>`: what the files of a process begin with.
std::string file_stem(const TraceSettings& settings, std::uint32_t pid);

}  // namespace dftrace
