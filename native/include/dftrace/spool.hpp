// The spool: a mapped file of 64 KiB units that outlives its process.
//
// Unit 0 is the header. Every other unit begins with a UnitHeader that says what it is, so that a
// reader needs nothing but the file: it walks the units in order, sorts a thread's ring units by
// `sequence`, and knows from `committed` what is valid and from `consumed` what is already in the
// trace file. docs/design/spool.md tells the whole layout.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "dftrace/clock.hpp"
#include "dftrace/record.hpp"

namespace dftrace {

constexpr std::size_t unit_bytes = 64 * 1024;
constexpr std::uint64_t spool_magic = 0x314c4f4f50534644;  // "DFSPOOL1"
constexpr std::uint32_t spool_version = 1;
constexpr std::uint32_t unit_magic = 0x54494e55;  // "UNIT"

enum class UnitKind : std::uint32_t {
    free = 0,
    thread = 1,     // ThreadBlock, then records
    ring = 2,       // records
    names = 3,      // Blob entries: names and exception types, never released
    arguments = 4,  // Blob entries: argument snapshots and their releases
};

struct UnitHeader {
    std::uint32_t magic;
    UnitKind kind;
    std::uint32_t owner;  // number of the thread, for thread and ring units
    std::uint32_t units;  // length of this run of units; > 1 only for a large argument
    std::uint64_t sequence;
    std::atomic<std::uint32_t> committed;  // records, or bytes of blobs, that are valid
    std::uint32_t consumed;                // of these, how many are in the trace file for sure
    std::uint32_t pending;                 // ... and are in it too if write number `pending_write` landed
    std::uint32_t left;                    // 1 once the drain thread went on to the unit behind it
    std::uint64_t pending_write;
    std::atomic<std::uint32_t> next;  // index of the unit that follows in a chain, 0 for none
    std::uint32_t capacity;           // records, or bytes of blobs, that fit
    std::uint64_t reserved1;
};
static_assert(sizeof(UnitHeader) == 64);

constexpr std::uint32_t max_open_spans = 240;
constexpr std::uint32_t max_open_task_spans = 120;

// First part of a thread's first unit: who it is and what it is in right now.
struct ThreadBlock {
    UnitHeader unit;
    std::uint32_t tid;
    std::atomic<std::uint32_t> ended;
    std::atomic<std::uint32_t> depth;  // open spans; beyond max_open_spans only counted
    std::uint32_t task_slots;          // high-water mark of `tasks`
    char name[112];
    OpenSpan open[max_open_spans];
    OpenSpan tasks[max_open_task_spans];
};
constexpr std::size_t thread_block_bytes = 16 * 1024;
static_assert(sizeof(ThreadBlock) <= thread_block_bytes);

enum class BlobKind : std::uint32_t { name = 1, arguments = 2, release = 3 };

struct BlobHeader {
    std::uint32_t id;
    std::uint32_t bytes;
    BlobKind kind;
    std::uint32_t reserved;
};
static_assert(sizeof(BlobHeader) == 16);

constexpr std::size_t max_clock_segments = 256;

// How far a trace file has come. What is open is written after all records, and in writes of its
// own, so that a second adopter knows whether it is there.
enum class TraceStage : std::uint32_t {
    records = 0,
    unfinished = 1,  // the spans that were open are there as well
    complete = 2,    // the footer, too
};

// The state of the trace file once a write is done.
struct WriteMark {
    std::uint64_t file_bytes;
    std::uint64_t plain_bytes;
    std::uint64_t lines[8];  // written lines by Kind; 0: unfinished spans
    std::uint32_t lanes;     // synthetic tracks given out by the writer
    TraceStage stage;
};

struct SpoolHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t unit_size;
    std::uint32_t record_size;
    std::uint32_t pid;
    std::uint32_t parent_pid;
    std::uint32_t reserved0;
    std::uint64_t process_start;  // field 22 of /proc/PID/stat: tells a reused pid
    char boot_id[40];
    char run[40];
    std::atomic<std::uint32_t> units;      // units in use or once used, the header included
    std::atomic<std::uint32_t> finalized;  // 1: the trace file is complete
    // Write number n is described by marks[n % 2] before it is made. If the trace file is at least
    // as long as that mark says, the write landed; else the other mark holds.
    std::atomic<std::uint64_t> write_number;
    WriteMark marks[2];
    std::atomic<std::uint64_t> dropped;
    std::atomic<std::uint64_t> waits;
    std::atomic<std::uint64_t> unmatched_stops;
    std::atomic<std::uint64_t> args_sanitised;
    std::atomic<std::uint32_t> clock_segments;  // total number; the array holds the last ones
    std::uint32_t reserved;
    ClockSegment clock[max_clock_segments];
    std::atomic<std::uint32_t> trace_path_bytes;
    std::uint32_t settings_bytes;
    char trace_path[4096];
    char settings[32 * 1024];  // JSON: what a reader needs to write the lines as this process would
};
static_assert(sizeof(SpoolHeader) <= unit_bytes);

// Who holds this spool: enough to tell whether it still lives.
struct ProcessIdentity {
    std::uint32_t pid;
    std::uint64_t start;
    std::string boot_id;
    static ProcessIdentity self();
    // True when the process that these values describe is gone (or was on another boot).
    static bool gone(std::uint32_t pid, std::uint64_t start, std::string_view boot_id);
};

class Spool {
  public:
    // Creates `path` exclusively with mode 0600; throws std::system_error.
    Spool(std::string path, std::size_t limit_bytes);
    ~Spool();
    Spool(const Spool&) = delete;
    Spool& operator=(const Spool&) = delete;

    SpoolHeader& header() noexcept { return *reinterpret_cast<SpoolHeader*>(base_); }
    const std::string& path() const noexcept { return path_; }
    UnitHeader* unit(std::uint32_t index) noexcept {
        return reinterpret_cast<UnitHeader*>(base_ + std::size_t{index} * unit_bytes);
    }
    std::uint32_t index_of(const UnitHeader* unit) const noexcept {
        return static_cast<std::uint32_t>((reinterpret_cast<const char*>(unit) - base_) / unit_bytes);
    }

    // A fresh run of units, or nullptr when the limit or the file system says no. The space is
    // reserved before it is touched: a store into a full tmpfs would be SIGBUS.
    UnitHeader* acquire(UnitKind kind, std::uint32_t owner, std::uint32_t units = 1);
    void release(UnitHeader* unit);
    void unlink() noexcept;
    // In a forked child: forget the parent's mapping without touching its file.
    void abandon() noexcept;
    std::uint64_t used_bytes() noexcept {
        return std::uint64_t{header().units.load(std::memory_order_relaxed)} * unit_bytes;
    }

  private:
    std::uint32_t take_free_run(std::uint32_t units);

    std::string path_;
    int fd_ = -1;
    char* base_ = nullptr;
    std::size_t limit_bytes_;
    std::uint32_t used_units_ = 1;
    std::uint64_t next_sequence_ = 1;
    std::vector<std::uint32_t> free_;
    std::mutex mutex_;
};

inline Record* records_of(UnitHeader* unit) noexcept {
    const std::size_t skip = unit->kind == UnitKind::thread ? thread_block_bytes : sizeof(UnitHeader);
    return reinterpret_cast<Record*>(reinterpret_cast<char*>(unit) + skip);
}

inline char* blobs_of(UnitHeader* unit) noexcept {
    return reinterpret_cast<char*>(unit) + sizeof(UnitHeader);
}

}  // namespace dftrace
