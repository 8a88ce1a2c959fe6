// Reading a dead process's spool.
#include "dftrace/adoption.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <stdexcept>

namespace dftrace {

namespace {

// The file, mapped for as long as it is adopted. Shared, so that the marks reach the file.
class MappedSpool {
  public:
    // Delegates, so that a file that is refused is closed again.
    explicit MappedSpool(const std::string& path) : MappedSpool() {
        fd_ = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        struct stat info;
        if (fd_ < 0 || fstat(fd_, &info) != 0) throw std::runtime_error(path + ": " + std::strerror(errno));
        if (!S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(unit_bytes))
            throw std::runtime_error(path + ": not a spool");
        units_ = static_cast<std::uint32_t>(static_cast<std::size_t>(info.st_size) / unit_bytes);
        void* mapped =
            mmap(nullptr, std::size_t{units_} * unit_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
        if (mapped == MAP_FAILED) throw std::runtime_error(path + ": " + std::strerror(errno));
        base_ = static_cast<char*>(mapped);
        const SpoolHeader& h = header();
        if (h.magic != spool_magic || h.unit_size != unit_bytes || h.record_size != sizeof(Record))
            throw std::runtime_error(path + ": not a spool");
        if (h.version != spool_version)
            throw std::runtime_error(path + ": spool version " + std::to_string(h.version) +
                                     " is not known to this dftrace (it reads version " +
                                     std::to_string(spool_version) + ")");
    }
    ~MappedSpool() {
        if (base_) munmap(base_, std::size_t{units_} * unit_bytes);
        if (fd_ >= 0) close(fd_);
    }
    MappedSpool() = default;
    MappedSpool(const MappedSpool&) = delete;
    MappedSpool& operator=(const MappedSpool&) = delete;

    // Only one process adopts; the lock goes with the descriptor.
    bool lock() noexcept { return flock(fd_, LOCK_EX | LOCK_NB) == 0; }
    SpoolHeader& header() noexcept { return *reinterpret_cast<SpoolHeader*>(base_); }

    // All units in use, in the order in which they were taken.
    std::vector<UnitHeader*> units() {
        std::vector<UnitHeader*> found;
        const std::uint32_t used = std::min(header().units.load(), units_);
        for (std::uint32_t i = 1; i < used;) {
            auto* unit = reinterpret_cast<UnitHeader*>(base_ + std::size_t{i} * unit_bytes);
            const std::uint32_t run = unit->magic == unit_magic ? unit->units : 1;
            if (run == 0 || run > used - i) break;  // nothing behind a broken header can be trusted
            if (unit->magic == unit_magic && unit->kind != UnitKind::free && sound(*unit))
                found.push_back(unit);
            i += run;
        }
        std::sort(found.begin(), found.end(),
                  [](const UnitHeader* a, const UnitHeader* b) { return a->sequence < b->sequence; });
        return found;
    }

  private:
    static bool sound(const UnitHeader& unit) {
        const std::size_t bytes = std::size_t{unit.units} * unit_bytes;
        switch (unit.kind) {
            case UnitKind::thread:
                return unit.units == 1 && unit.capacity <= (unit_bytes - thread_block_bytes) / sizeof(Record);
            case UnitKind::ring:
                return unit.units == 1 && unit.capacity <= (unit_bytes - sizeof(UnitHeader)) / sizeof(Record);
            case UnitKind::names:
            case UnitKind::arguments: return unit.capacity <= bytes - sizeof(UnitHeader);
            case UnitKind::free: break;
        }
        return false;
    }

    int fd_ = -1;
    char* base_ = nullptr;
    std::uint32_t units_ = 0;
};

ClockMap clock_of(const SpoolHeader& h) {
    const std::uint32_t total = h.clock_segments.load();
    const std::uint32_t kept = std::min<std::uint32_t>(total, max_clock_segments);
    std::vector<ClockSegment> segments;
    for (std::uint32_t i = total - kept; i != total; ++i) segments.push_back(h.clock[i % max_clock_segments]);
    if (segments.empty()) throw std::runtime_error("the spool has no clock");
    return ClockMap::from_segments(std::move(segments));
}

// Finds out whether the last write that was begun reached the file, and makes marks and units say
// so. Numbers of writes are used again: no unit may go on naming one, or the next adopter, should
// this one die, would take its records for written.
void settle_last_write(SpoolHeader& h, const std::string& trace, const std::vector<UnitHeader*>& units) {
    const std::uint64_t number = h.write_number.load();
    bool landed = false;
    if (number) {
        struct stat info;
        if (stat(trace.c_str(), &info) != 0)
            throw std::runtime_error(trace + ": cannot be continued: " + std::strerror(errno));
        landed = static_cast<std::uint64_t>(info.st_size) >= h.marks[number % 2].file_bytes;
    }
    for (UnitHeader* unit : units) {
        if (landed && unit->pending_write == number) unit->consumed = unit->pending;
        std::atomic_signal_fence(std::memory_order_release);
        unit->pending_write = 0;
    }
    if (number && !landed) h.write_number.store(number - 1);
}

// A dead thread: its track, and its units in the order in which it filled them.
struct DeadThread {
    ThreadBlock* block;
    std::vector<UnitHeader*> units;
    Track track;
};

void write_records(TraceWriter& writer, DeadThread& thread, const BlobTables& tables, const ClockMap& clock) {
    for (UnitHeader* unit : thread.units) {
        std::uint32_t scan = unit->consumed;
        const std::uint32_t limit = std::min(unit->committed.load(), unit->capacity);
        if (!writer.records(unit, scan, limit, thread.track, tables, clock))
            throw std::runtime_error(std::strerror(writer.last_error()));
    }
}

void write_unfinished(TraceWriter& writer, DeadThread& thread, const BlobTables& tables,
                      const ClockMap& clock) {
    const ThreadBlock& block = *thread.block;
    const std::uint32_t depth = std::min(block.depth.load(), max_open_spans);
    for (std::uint32_t i = 0; i < depth; ++i) {
        // Killed while a span was taken off the middle: the one above it stands there twice.
        if (i && block.open[i].id == block.open[i - 1].id) continue;
        writer.unfinished(block.open[i], thread.track, tables, clock);
    }
    for (std::uint32_t i = 0; i < std::min(block.task_slots, max_open_task_spans); ++i)
        if (block.tasks[i].live) writer.unfinished(block.tasks[i], thread.track, tables, clock);
}

// Writes what the trace lacks; returns its path, empty if there is nothing to tell.
std::string complete_trace(MappedSpool& spool, const TraceSettings& settings, const std::string& trace) {
    SpoolHeader& h = spool.header();
    const std::vector<UnitHeader*> units = spool.units();
    settle_last_write(h, trace, units);
    if (h.marks[h.write_number.load() % 2].stage == TraceStage::complete) return trace;
    const ClockMap clock = clock_of(h);
    BlobTables tables;
    std::vector<DeadThread> threads;
    std::map<std::uint32_t, std::vector<UnitHeader*>> rings;
    for (UnitHeader* unit : units) {
        if (unit->kind == UnitKind::names || unit->kind == UnitKind::arguments)
            tables.read(unit);
        else if (unit->kind == UnitKind::thread)
            threads.push_back({reinterpret_cast<ThreadBlock*>(unit), {unit}, {}});
        else
            rings[unit->owner].push_back(unit);
    }
    TraceWriter writer(settings, h, h.parent_pid);
    if (!writer.resume(trace)) throw std::runtime_error(trace + ": cannot be continued");
    for (DeadThread& thread : threads) {
        const std::vector<UnitHeader*>& own = rings[thread.block->unit.owner];
        thread.units.insert(thread.units.end(), own.begin(), own.end());
        thread.track.tid = thread.block->tid;
        thread.track.name =
            std::string(thread.block->name, strnlen(thread.block->name, sizeof thread.block->name));
        write_records(writer, thread, tables, clock);
    }
    const bool told = writer.stage() == TraceStage::unfinished;
    int error = writer.end_records();
    if (!error && !told)
        for (DeadThread& thread : threads) write_unfinished(writer, thread, tables, clock);
    const Losses losses{h.dropped.load(), h.waits.load(), h.unmatched_stops.load(), h.args_sanitised.load(),
                        0};
    if (!error) error = writer.finish("adopted", losses);
    if (error) throw std::runtime_error(std::strerror(error));
    return writer.file().path();
}

}  // namespace

AdoptionResult adopt_spool(const std::string& spool_path) {
    AdoptionResult result{Adopted::failed, {}};
    result.outcome.spool_path = spool_path;
    try {
        MappedSpool spool(spool_path);
        SpoolHeader& h = spool.header();
        const TraceSettings settings =
            TraceSettings::decode({h.settings, std::min<std::size_t>(h.settings_bytes, sizeof h.settings)});
        const std::string boot(h.boot_id, strnlen(h.boot_id, sizeof h.boot_id));
        // Of a process on another host nothing can be known from here.
        if (settings.host != host_name() || !ProcessIdentity::gone(h.pid, h.process_start, boot) ||
            !spool.lock()) {
            result.state = Adopted::alive;
            return result;
        }
        const std::string trace(h.trace_path,
                                std::min<std::size_t>(h.trace_path_bytes.load(), sizeof h.trace_path));
        result.outcome.trace_path = h.finalized.load() ? trace : complete_trace(spool, settings, trace);
        h.finalized.store(1);
        unlink(spool_path.c_str());
        result.outcome.spool_path.clear();
        result.state = Adopted::finished;
    } catch (const std::exception& error) {
        result.outcome.error = error.what();
    }
    return result;
}

}  // namespace dftrace
