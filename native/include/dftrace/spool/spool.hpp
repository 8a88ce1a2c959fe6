// The spool: a mapped file of 64 KiB units that outlives its process.
//
// Unit 0 is the header. Every other unit begins with a UnitHeader that says what it is, so that a
// reader needs nothing but the file: it walks the units in order, sorts a thread's ring units by
// `sequence`, and knows from `committed` what is valid and from `consumed` what is already in the
// trace file. docs/design/spool.md tells the whole layout.
#pragma once

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dftrace/spool/record.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"
#include "dftrace/system/host_clocks.hpp"

namespace dftrace {

constexpr std::size_t unit_bytes = 64 * 1024;
constexpr std::uint64_t spool_magic = 0x314c4f4f50534644;  // "DFSPOOL1"
constexpr std::uint32_t spool_version = 3;
constexpr std::uint32_t unit_magic = 0x54494e55;  // "UNIT"

enum class UnitKind : std::uint32_t {
    free = 0,
    thread = 1,     // ThreadBlock, then records
    ring = 2,       // records
    names = 3,      // Blob entries that are never released: names, exception types, what every part tells
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
    // Records that the thread stored in units before this one, and `starting_over`.
    std::atomic<std::uint64_t> before;

    // A full unit once more, for records that come behind those that it holds.
    void start_over() noexcept;
};
static_assert(sizeof(UnitHeader) == 64);
// In `before`: the unit is full as far as a reader sees, whatever `committed` says.
constexpr std::uint64_t starting_over = std::uint64_t{1} << 63;

constexpr std::uint32_t max_open_spans = 240;
constexpr std::uint32_t max_open_task_spans = 120;

// A span that is recorded when it is over, such as a training's step, as far as it has come: should the
// process die before, it is told by this. Killed between its record and this, it stands in both places by one
// id.
struct AwaitedSpan {
    std::uint64_t id;
    std::uint64_t start;
    std::uint64_t end;  // 0 while it goes on
    std::uint32_t node;
    std::uint32_t lane;
    std::int64_t epoch;
    std::int64_t step;
    std::int64_t microbatches;
    std::uint32_t has;  // which of these numbers: `AwaitedNumber`s
    std::uint32_t reserved;
};
enum AwaitedNumber : std::uint32_t { awaited_epoch = 1, awaited_step = 2, awaited_microbatches = 4 };
// Its place. What a unit held before it was a thread's is none.
struct AwaitedSlot {
    static constexpr std::uint64_t valid = 0x6465746961776173;
    std::atomic<std::uint64_t> mark;  // `valid` xor the span's id
    AwaitedSpan span;

    bool holds() const noexcept {
        return span.id && mark.load(std::memory_order_acquire) == (valid ^ span.id);
    }
    void put(const AwaitedSpan& what) noexcept {
        clear();
        span = what;
        mark.store(valid ^ span.id, std::memory_order_release);
    }
    void clear() noexcept { mark.exchange(0); }
};
constexpr std::uint32_t max_awaited_spans = 2;

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
    AwaitedSlot awaited[max_awaited_spans];
};
// In place of a thread's number: the block of who samples stacks. In its `open` stands where threads are,
// which is no span: `id` is the thread's number, `start` since when, `args` the stack; its `depth` stays 0.
constexpr std::uint32_t sampler_tid = 0x4fffffff;
constexpr std::size_t thread_block_bytes = 16 * 1024;
static_assert(sizeof(ThreadBlock) <= thread_block_bytes);

inline bool holds_open_spans(const ThreadBlock& block) noexcept {
    if (block.depth.load(std::memory_order_acquire)) return true;
    for (std::uint32_t i = 0; i < block.task_slots && i < max_open_task_spans; ++i)
        if (block.tasks[i].live) return true;
    return false;
}

// `fact` and `lane`: what every part of a trace tells, also one that a recovery begins.
enum class BlobKind : std::uint32_t { name = 1, arguments = 2, release = 3, fact = 4, lane = 5 };

struct BlobHeader {
    std::uint32_t id;
    std::uint32_t bytes;
    BlobKind kind;
    std::uint32_t reserved;
};
static_assert(sizeof(BlobHeader) == 16);

constexpr std::uint32_t max_clock_segments = 256;

// Where segment `number` stands: the first one for ever, the others in turn.
inline std::uint32_t clock_slot(std::uint32_t number) noexcept {
    return number == 0 ? 0 : 1 + (number - 1) % (max_clock_segments - 1);
}

// How far a trace file has come. What is open is written after all records, and in writes of its
// own, so that a second adopter knows whether it is there.
enum class TraceStage : std::uint32_t {
    records = 0,
    unfinished = 1,  // the spans that were open are there as well
    complete = 2,    // the footer, too
};

// Written lines by Kind; 0: unfinished spans, `samples_slot`: samples of stacks, which are no lines.
constexpr std::size_t samples_slot = 7;
using LineCounts = std::array<std::uint64_t, 8>;

// The state of the trace once a write is done. A trace is one file, or several parts of which the
// last is written to.
struct WriteMark {
    std::uint64_t file_bytes;  // of the part
    std::uint64_t plain_bytes;
    LineCounts lines;          // in the part
    LineCounts earlier_lines;  // in the parts before
    Losses told;               // in the footers of the parts before
    std::uint32_t lanes;       // synthetic tracks given out by the writer
    TraceStage stage;
    std::uint32_t part;    // from 0
    std::uint32_t closed;  // 1: the part has its footer, another follows
};

struct TracePath {
    std::atomic<std::uint32_t> bytes;
    std::uint32_t part;
    char text[4096];

    void set(std::uint32_t number, std::string_view path) noexcept {
        const std::size_t length = path.size() < sizeof text ? path.size() : sizeof text;
        bytes.store(0, std::memory_order_release);
        part = number;
        path.copy(text, length);
        bytes.store(static_cast<std::uint32_t>(length), std::memory_order_release);
    }
    std::string get() const {
        const std::size_t length = bytes.load(std::memory_order_acquire);
        return {text, length < sizeof text ? length : sizeof text};
    }
};

// How a process ended its run, which stays in the spool where the trace could not take the rest.
enum class AskedEnd : std::uint32_t { none = 0, finalize = 1, exit = 2, exception = 3 };

// The process among the ranks, where that became known when the spool was there: each number + 1, 0 for
// unknown. Set once, the rank last.
struct LatePlace {
    std::atomic<std::uint32_t> rank, world_size, local_rank;

    // Below 0 for unknown; what is known already stays.
    void know(int its_rank, int its_world_size, int its_local_rank) noexcept {
        if (rank.load(std::memory_order_relaxed)) return;
        world_size = static_cast<std::uint32_t>(its_world_size + 1);
        local_rank = static_cast<std::uint32_t>(its_local_rank + 1);
        rank.store(static_cast<std::uint32_t>(its_rank) + 1, std::memory_order_release);
    }
    // Members of a header's arguments, of which there are none before the rank is known.
    std::vector<std::pair<std::string_view, std::uint32_t>> members() const;
};

struct SpoolHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t unit_size;
    std::uint32_t record_size;
    std::uint32_t pid;
    std::uint32_t parent_pid;
    std::atomic<std::uint32_t> asked_end;  // how the process has asked for the end of its run, see `AskedEnd`
    std::uint64_t process_start;           // field 22 of /proc/PID/stat: tells a reused pid
    std::uint64_t pid_namespace;           // in which `pid` is its number
    char boot_id[40];
    char run[40];
    std::atomic<std::uint32_t> units;      // units in use or once used, the header included
    std::atomic<std::uint32_t> finalized;  // 1: the trace file is complete
    // Write number n is described by marks[n % 2] before it is made. If the trace file is at least
    // as long as that mark says, the write landed; else the other mark holds.
    std::atomic<std::uint64_t> write_number;
    std::atomic<std::uint64_t> landed;  // the last write of which the writer has learnt that it did
    WriteMark marks[2];
    std::atomic<std::uint64_t> dropped;
    std::atomic<std::uint64_t> waits;
    std::atomic<std::uint64_t> unmatched_stops;
    std::atomic<std::uint64_t> args_sanitised;
    std::atomic<std::uint64_t> drain_cpu_us;
    // Flight recorder: records that ended before this tick are no longer all there.
    std::atomic<std::uint64_t> complete_from;
    std::atomic<std::uint64_t> overwritten;     // records that the flight recorder let go
    std::atomic<std::uint32_t> clock_segments;  // total number; the array holds the first and the last ones
    std::atomic<std::uint32_t> write_error;     // errno of the last write to the trace, 0 if it landed
    ClockSegment clock[max_clock_segments];
    // What was seen of the host's clocks the last time: look number n, from 1, is in [n % 2].
    std::atomic<std::uint32_t> clock_looks;
    HostClocks host_clocks[2];
    TracePath trace_paths[2];  // part p of the trace is named in [p % 2]
    std::uint32_t settings_bytes;
    char settings[32 * 1024];  // what a reader needs to write the lines as this process would
    LatePlace late_place;      // all 0 in spools of before

    Losses losses() const noexcept {
        return {dropped.load(), waits.load(), unmatched_stops.load(), args_sanitised.load(),
                drain_cpu_us.load()};
    }
    // All is 0 where nobody has looked yet.
    const HostClocks& last_clocks() const noexcept {
        return host_clocks[clock_looks.load(std::memory_order_acquire) % 2];
    }
    // By the drain thread alone. Killed in between, the look before this one holds.
    const HostClocks& look_at_clocks() noexcept {
        const std::uint32_t number = clock_looks.load(std::memory_order_relaxed) + 1;
        host_clocks[number % 2] = HostClocks::now();
        clock_looks.store(number, std::memory_order_release);
        return host_clocks[number % 2];
    }
    const WriteMark& last_mark() const noexcept {
        return marks[write_number.load(std::memory_order_acquire) % 2];
    }
};
static_assert(sizeof(SpoolHeader) <= unit_bytes);

// Throws std::runtime_error unless the header is that of a spool of this version.
void check_spool_header(const SpoolHeader& header);
// The segments of the clock that the header holds, oldest first.
std::vector<ClockSegment> clock_segments_of(const SpoolHeader& header);

// Who holds a spool: enough to tell whether it still lives.
struct ProcessIdentity {
    std::uint32_t pid;
    std::uint64_t start;
    std::string boot_id;
    std::uint64_t pid_namespace;

    static ProcessIdentity self();
    static ProcessIdentity of(const SpoolHeader& header);
    // False when the process lives, or when it is one of another container and cannot be asked for: then
    // only the lock on its spool tells.
    bool gone() const;
    bool elsewhere() const;  // in another pid namespace of this machine, or where no /proc says which
    bool of_earlier_boot() const;
    bool is_this_one() const;
};

// What the system still knows of the end of a process that is gone.
struct ProcessEnd {
    bool machine_restarted = false;
    int signal = 0;        // that killed it, 0 for none or unknown
    int exit_status = -1;  // -1 for unknown: its parent has asked for it already
    static ProcessEnd of(const ProcessIdentity& process);
};

class Spool {
  public:
    // Stores in the header what else it is to say from its first moment on.
    using Beginning = std::function<void(SpoolHeader&)>;

    // Creates `path` exclusively with mode 0600; throws std::system_error. The file gets its name once its
    // header is whole: a process that is killed before leaves nothing.
    Spool(std::string path, std::size_t limit_bytes, const Beginning& beginning = {});
    ~Spool();
    Spool(const Spool&) = delete;
    Spool& operator=(const Spool&) = delete;

    SpoolHeader& header() noexcept { return *reinterpret_cast<SpoolHeader*>(base_); }
    const std::string& path() const noexcept { return path_; }
    // Its number, for the next call only; where the program has closed it, it is opened again. -1 where it
    // cannot be.
    int descriptor() noexcept;
    const char* memory() const noexcept { return base_; }
    UnitHeader* unit(std::uint32_t index) noexcept {
        return reinterpret_cast<UnitHeader*>(base_ + std::size_t{index} * unit_bytes);
    }
    std::uint32_t index_of(const UnitHeader* unit) const noexcept {
        return static_cast<std::uint32_t>(
            static_cast<std::size_t>(reinterpret_cast<const char*>(unit) - base_) / unit_bytes);
    }

    // A fresh run of units, or nullptr when the limit or the file system says no. The space is
    // reserved before it is touched: a store into a full tmpfs would be SIGBUS. `before`: what the header
    // says of it from the first moment on that a reader sees the unit.
    UnitHeader* acquire(UnitKind kind, std::uint32_t owner, std::uint32_t units = 1,
                        std::uint64_t before = 0);
    void release(UnitHeader* unit) noexcept;
    // For one thread beside those that acquire, which it never holds up for long: room behind the units that
    // are in use, reserved and mapped, so that with what was released `wanted` units can be had at once. It
    // goes by the same limit; where the file system says no that is no refusal, since nobody needs it yet.
    void prepare(std::uint32_t wanted) noexcept;
    // By the same thread: lets go of all such room that nobody has taken.
    void give_back_prepared() noexcept;
    // The unit was not released since it got this number.
    bool holds(const UnitHeader* unit, std::uint64_t sequence) noexcept;
    std::size_t most_units() const noexcept { return limit_bytes_ / unit_bytes; }
    // So many units in a row would fit if all others were released.
    bool could_give(std::uint32_t units) const noexcept {
        return (std::size_t{units} + 1) * unit_bytes <= limit_bytes_;
    }
    // The errno for which the file system refused more room the last time, 0 if it never did.
    int refused() const noexcept { return refused_.load(std::memory_order_relaxed); }
    // Somebody has removed the file. All goes on in memory that nobody else finds any more.
    bool removed() const noexcept {
        const int seen = look();
        return seen == ENOENT || (seen != 0 && file_.has_no_name());
    }
    // Where the file lies by now: its directory may have been renamed. Empty where it was removed.
    std::string place() const;
    // Writes what is recorded to a new file at the place of the one that was removed. For the end: what is
    // recorded later does not reach it.
    void store_again() noexcept;
    // 0, also where it was removed before, or an errno.
    int unlink() noexcept;
    // In a forked child: forget the parent's mapping without touching its file.
    void abandon() noexcept;
    std::uint64_t used_bytes() noexcept {
        return std::uint64_t{header().units.load(std::memory_order_relaxed)} * unit_bytes;
    }

  private:
    // 0 where the file is found under its name; ENOENT where it is not there, or why that cannot be seen.
    int look() const noexcept;
    // The file lies in its directory, wherever that is.
    bool moved_along() const noexcept {
        return file_.lies_at(name_in_directory(path_), directory_.descriptor());
    }
    int make(bool nameless, const ProcessIdentity& self, const Beginning& beginning);
    int map() noexcept;
    int open_again() noexcept;
    std::uint32_t take_free_run(std::uint32_t units);
    bool prepare_one(std::uint32_t wanted) noexcept;
    int reserve(std::size_t from, std::size_t bytes) noexcept;

    std::string path_;
    mutable MappedDirectory directory_;  // the drain thread's, and of whoever comes when that is gone
    HeldFile file_;
    char* base_ = nullptr;
    std::size_t limit_bytes_;
    std::uint32_t used_units_ = 1;
    std::uint32_t prepared_units_ = 1;  // up to here all are reserved and mapped; may lag behind those in use
    std::uint64_t next_sequence_ = 1;
    std::vector<std::uint32_t> free_;
    std::atomic<int> refused_{0};
    std::mutex mutex_;  // guards which units are in use, and their numbers
};

inline Record* records_of(UnitHeader* unit) noexcept {
    const std::size_t skip = unit->kind == UnitKind::thread ? thread_block_bytes : sizeof(UnitHeader);
    return reinterpret_cast<Record*>(reinterpret_cast<char*>(unit) + skip);
}

inline char* blobs_of(UnitHeader* unit) noexcept {
    return reinterpret_cast<char*>(unit) + sizeof(UnitHeader);
}

}  // namespace dftrace
