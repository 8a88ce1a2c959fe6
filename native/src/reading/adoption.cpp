// Reading a dead process's spool and completing its trace.
#include "dftrace/reading/adoption.hpp"

#include <sched.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>

#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/reading/spool_view.hpp"
#include "dftrace/reading/waiting_events.hpp"
#include "dftrace/spool/spool_marker.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/file_size_signal.hpp"
#include "dftrace/system/host_name.hpp"
#include "dftrace/text/json_check.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

namespace {

// Above every thread id that Linux gives, below the lanes: threads of which only records were found.
constexpr std::uint32_t first_lost_thread = 0x30000000;
constexpr std::uint32_t highest_thread_id = 1u << 22;  // that Linux gives

// Behind what tells that nothing can be added to a trace.
constexpr std::string_view goes_elsewhere =
    "; dftrace recover DIR --orphans writes what the spool holds to another file";

std::string counted(std::uint64_t number, std::string_view what) {
    return std::to_string(number) + " " + std::string(what);
}

// Where the trace lies: its directory's name, for messages, and the directory itself.
struct TracePlace {
    const std::string& shown;
    const Directory& directory;
};

// The settings become part of the trace's lines and of its name.
void check_settings(const TraceSettings& s) {
    const auto only = [](std::string_view text, std::string_view letters) {
        return text.find_first_not_of(letters) == std::string_view::npos;
    };
    constexpr std::string_view hex = "0123456789abcdef";
    constexpr std::string_view of_hosts = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._-";
    const bool sound = only(s.host_hash, hex) && only(s.run, hex) && only(s.host, of_hosts) &&
                       is_json_string(s.process_name_json) && is_json_members(s.header_json) &&
                       (s.cwd_json.empty() || is_json_string(s.cwd_json)) &&
                       (s.command_json.empty() || is_json_string(s.command_json)) &&
                       s.time_base_us < UINT64_MAX / 1000 && s.block_bytes > 0 &&
                       s.block_bytes <= std::size_t{1} << 30;
    if (!sound) throw std::runtime_error("the settings in the spool are damaged");
}

// What the file of the last write holds, as against what the spool says of it.
struct LastWrite {
    bool landed = false;
    std::string gone{};  // why nothing can be added to the file: it, or what was written to it, is not there
};

LastWrite look_at_last_write(const SpoolHeader& h, const TracePlace& place) {
    const std::uint64_t number = h.write_number.load();
    // Where its process learnt that the write landed its records may be gone from the spool.
    LastWrite last{number && h.landed.load() == number};
    if (!number) return last;
    const WriteMark& mark = h.last_mark();
    const WriteMark& before = h.marks[(number - 1) % 2];
    const bool goes_on = number > 1 && before.part == mark.part && !before.closed;
    const std::uint64_t least = last.landed ? mark.file_bytes : goes_on ? before.file_bytes : 0;
    const std::string name = name_in_directory(h.trace_paths[mark.part % 2].get());
    struct stat info;
    const int unseen = place.directory.look(name.c_str(), info);
    std::string fault;
    if (!unseen && !S_ISREG(info.st_mode)) {
        fault = "it is no file";
    } else if (!unseen) {
        last.landed |= static_cast<std::uint64_t>(info.st_size) >= mark.file_bytes;
        if (static_cast<std::uint64_t>(info.st_size) < least)
            last.gone = "it is shorter than what was written to it";
    } else if (unseen == ENOENT && mark.closed) {
        last.landed = true;  // a part that had its footer, and was too old to be kept
    } else if (unseen == ENOENT) {
        last.gone = std::strerror(unseen);
    } else {
        fault = std::strerror(unseen);
    }
    if (!last.gone.empty()) last.gone = place.shown + "/" + name + ": cannot be continued: " + last.gone;
    if (!fault.empty())
        throw std::runtime_error(place.shown + "/" + name + ": cannot be continued: " + fault);
    return last;
}

// Finds out whether the last write that was begun reached the file, and makes marks and units say
// so. Numbers of writes are used again: no unit may go on naming one, or the next adopter, should
// this one die, would take its records for written.
void settle_last_write(SpoolView& spool, const TracePlace& place, const std::vector<UnitHeader*>& units,
                       bool anew, std::vector<std::string>& damage) {
    SpoolHeader& h = spool.header();
    const auto kept = [](int error) {
        if (error) throw std::runtime_error(std::strerror(error));
    };
    const LastWrite last = look_at_last_write(h, place);
    const bool gone = !last.gone.empty();
    if (gone && !anew) throw std::runtime_error(last.gone + std::string(goes_elsewhere));
    if (gone) damage.push_back("what was written before: the trace is gone, or was cut");
    const std::uint64_t number = h.write_number.load();
    if (last.landed && !gone && h.landed.load() != number) {
        h.landed.store(number);
        kept(spool.keep(h.landed));
    }
    for (UnitHeader* unit : units) {
        if (unit->pending_write == 0) continue;
        if (last.landed && !gone && unit->pending_write == number) unit->consumed = unit->pending;
        unit->pending_write = 0;
        kept(spool.keep(*unit));
    }
    if (gone) {
        // As its process would have done it: the trace goes on in another part.
        WriteMark& mark = h.marks[number % 2];
        mark.file_bytes = mark.plain_bytes = 0;
        mark.lines = {};
        mark.stage = TraceStage::records;
        mark.closed = 1;
        kept(spool.keep(mark));
        h.landed.store(number);
        kept(spool.keep(h.landed));
    } else if (number && !last.landed) {
        h.write_number.store(number - 1);
        kept(spool.keep(h.write_number));
    }
}

// A dead thread: its track, and its units in the order in which it filled them.
struct DeadThread {
    const ThreadBlock* block;  // nullptr when it is damaged
    std::vector<UnitHeader*> units;
    Track track;

    std::uint32_t open_spans() const { return block ? std::min(block->depth.load(), max_open_spans) : 0; }
};

struct DeadRun {
    BlobTables tables{true};
    std::vector<DeadThread> threads;
    std::vector<std::string> damage;
    bool was_complete = false;
    std::set<std::uint64_t> last_spans;  // the last that each thread stored

    // Killed between storing a record and taking its span off the open ones: it ended.
    bool ended(std::uint64_t id) const { return last_spans.count(id) != 0; }
};

void sort_units(SpoolView& spool, const std::vector<UnitHeader*>& units, DeadRun& run) {
    std::map<std::uint32_t, std::size_t> numbers;
    std::uint32_t unknown = 0;  // threads whose kernel's number is lost
    std::size_t misnumbered = 0;
    for (UnitHeader* unit : units) {
        if (unit->kind != UnitKind::thread) continue;
        spool.load(unit);
        spool.let_go(unit);
        const auto* block = reinterpret_cast<const ThreadBlock*>(unit);
        DeadThread thread{block, {unit}, {}};
        const bool sound = (block->tid > 0 && block->tid <= highest_thread_id) || is_track_apart(block->tid);
        misnumbered += !sound;
        thread.track.tid = sound ? block->tid : first_lost_thread + ++unknown;
        thread.track.name.assign(block->name, strnlen(block->name, sizeof block->name));
        numbers[unit->owner] = run.threads.size();
        run.threads.push_back(std::move(thread));
    }
    std::size_t lost = 0;
    for (UnitHeader* unit : units) {
        if (unit->kind == UnitKind::names || unit->kind == UnitKind::arguments) {
            spool.load(unit);
            run.tables.read(unit);
        }
        if (unit->kind != UnitKind::ring) continue;
        const auto [it, fresh] = numbers.try_emplace(unit->owner, run.threads.size());
        if (fresh) {
            DeadThread thread{nullptr, {}, {}};
            ++lost;
            thread.track.tid = first_lost_thread + ++unknown;
            thread.track.name = "thread " + std::to_string(unit->owner) + " (damaged)";
            run.threads.push_back(std::move(thread));
        }
        run.threads[it->second].units.push_back(unit);
    }
    for (const DeadThread& thread : run.threads) {
        UnitHeader* last = thread.units.back();
        const std::uint32_t count = std::min(last->committed.load(), last->capacity);
        spool.load(last);
        if (count && records_of(last)[count - 1].kind == Kind::span)
            run.last_spans.insert(records_of(last)[count - 1].id);
        spool.let_go(last);
    }
    if (misnumbered)
        run.damage.push_back(counted(misnumbered, misnumbered == 1 ? "thread's number" : "threads' numbers"));
    if (lost)
        run.damage.push_back(
            counted(lost, lost == 1 ? "thread's name and open spans" : "threads' names and open spans"));
}

[[noreturn]] void fail(TraceWriter& writer, int error) {
    if (writer.parts().file_was_spoilt())
        throw std::runtime_error(writer.path() +
                                 ": was removed or cut while it was completed; the spool is kept" +
                                 std::string(goes_elsewhere));
    throw std::runtime_error(std::strerror(error));
}

void write_records(SpoolView& spool, TraceWriter& writer, DeadThread& thread, const BlobTables& tables,
                   const ClockMap& clock) {
    for (UnitHeader* unit : thread.units) {
        spool.load(unit);
        std::uint32_t scan = unit->consumed;
        const std::uint32_t limit = std::min(unit->committed.load(), unit->capacity);
        if (const int error = writer.records(unit, scan, limit, thread.track, tables, clock))
            fail(writer, error);
        spool.let_go(unit);
    }
}

void write_unfinished(TraceWriter& writer, DeadThread& thread, DeadRun& run, const ClockMap& clock) {
    if (!thread.block) return;
    const ThreadBlock& block = *thread.block;
    for (std::uint32_t i = 0; i < thread.open_spans(); ++i) {
        // Killed while a span was taken off the middle: the one above it stands there twice.
        if (i && block.open[i].id == block.open[i - 1].id) continue;
        if (!run.ended(block.open[i].id)) writer.unfinished(block.open[i], thread.track, run.tables, clock);
    }
    for (std::uint32_t i = 0; i < std::min(block.task_slots, max_open_task_spans); ++i)
        if (block.tasks[i].live && !run.ended(block.tasks[i].id))
            writer.unfinished(block.tasks[i], thread.track, run.tables, clock);
    for (const AwaitedSlot& slot : block.awaited)
        if (slot.holds() && !run.ended(slot.span.id))
            writer.awaited(slot.span, thread.track, run.tables, clock);
}

// Compressing takes three times as long as the rest. On a single processor threads would gain nothing.
unsigned threads_ahead() noexcept {
    constexpr int most = 4;
    cpu_set_t ours;
    if (sched_getaffinity(0, sizeof ours, &ours) != 0) return 0;
    const int processors = std::min(CPU_COUNT(&ours), most);
    return processors > 1 ? static_cast<unsigned>(processors) : 0;
}

// Numbers of errors as Linux has them.
constexpr int most_errno = 4096;

std::string how_it_asked(std::uint32_t asked, std::string otherwise) {
    switch (static_cast<AskedEnd>(asked)) {
        case AskedEnd::finalize: return "finalize";
        case AskedEnd::exit: return "exit";
        case AskedEnd::exception: return "exception";
        default: return otherwise;
    }
}

Ending ending_of(const SpoolHeader& h, bool by_loader) {
    const ProcessEnd end = ProcessEnd::of(ProcessIdentity::of(h));
    const auto refused = static_cast<int>(h.write_error.load());
    Ending ending{by_loader ? "loader" : end.machine_restarted ? "reboot" : "died"};
    // It ended its run in order, and only the file could not take it.
    if (refused) ending.how = how_it_asked(h.asked_end.load(), std::move(ending.how));
    ending.write_error = refused > 0 && refused < most_errno ? refused : 0;
    ending.signal = end.signal;
    ending.exit_status = end.exit_status;
    ending.overwritten = h.overwritten.load();
    return ending;
}

// When the process last said that it lives, by its own clock; 0 for unknown. How long ago that was the wall
// clock tells, which may be another one than the process had.
std::uint64_t alive_until(const SpoolHeader& h, std::uint64_t touched_ns, const ClockMap& clock) {
    constexpr std::uint64_t one_a_tick = std::uint64_t{1} << 32;
    const std::uint64_t wall_ns = clock_ns(CLOCK_REALTIME);
    const bool ticks_alike = tick_source.tsc == (clock.segments().back().scale != one_a_tick);
    if (!touched_ns || touched_ns > wall_ns || !ticks_alike || ProcessIdentity::of(h).of_earlier_boot())
        return 0;
    const std::uint64_t now_ns = clock.to_ns(tick_source.now()), age_ns = wall_ns - touched_ns;
    return now_ns > age_ns ? now_ns - age_ns : 0;
}

// Writes what the trace lacks; returns its path, empty if there is nothing to tell.
std::string complete_trace(SpoolView& spool, const TraceSettings& settings, const TracePlace& place,
                           const AdoptionTerms& terms, DeadRun& run) {
    SpoolHeader& h = spool.header();
    const std::uint64_t touched_ns = spool.touched_ns();
    const std::vector<UnitHeader*> units = spool.units(run.damage);
    settle_last_write(spool, place, units, terms.anew, run.damage);
    const ClockMap clock = spool.clock();
    sort_units(spool, units, run);
    TraceWriter writer(settings, h, h.parent_pid);
    TraceParts& parts = writer.parts();
    parts.lies_in(place.directory);
    parts.keeps_marks_by([&spool](const void* mark, std::size_t bytes) { return spool.keep(mark, bytes); });
    parts.belongs_to({spool.owner(), spool.group()});
    parts.keeps_to_its_file();
    writer.blocks().compress_ahead(threads_ahead());
    writer.doubt_after(clock_ns(CLOCK_REALTIME));
    writer.leave_out_before(first_wanted_tick(spool, units, settings, clock));
    if (const int error = writer.resume())
        throw std::runtime_error(writer.path() + ": cannot be continued: " + std::strerror(error));
    writer.know(run.tables);
    const TraceStage stage = writer.blocks().stage();
    run.was_complete = stage == TraceStage::complete;
    if (run.was_complete) return writer.path();
    const bool told = stage == TraceStage::unfinished;
    for (DeadThread& thread : run.threads) write_records(spool, writer, thread, run.tables, clock);
    int error = writer.end_records();
    if (!error && !told)
        for (DeadThread& thread : run.threads) write_unfinished(writer, thread, run, clock);
    if (!error && !told) error = writer.lost_spans();
    if (run.tables.refused()) run.damage.push_back(counted(run.tables.refused(), "names or arguments"));
    if (spool.hollow())
        run.damage.push_back(counted(spool.hollow(), "units of names or arguments with holes"));
    if (spool.cut_meanwhile()) run.damage.emplace_back("what was cut off while it was read");
    if (writer.unreadable()) run.damage.push_back(counted(writer.unreadable(), "records"));
    Ending ending = ending_of(h, terms.by_loader);
    const std::uint64_t base_us = settings.epoch_us ? 0 : settings.time_base_us;
    const std::uint64_t alive_ns = alive_until(h, touched_ns, clock);
    if (alive_ns / 1000 > base_us) ending.alive_us = alive_ns / 1000 - base_us;
    ending.damaged = run.damage.size();
    ending.overwritten += writer.take_left_out();
    if (!error) error = writer.finish(ending);
    // The spool goes only when there is a file that holds all of it.
    if (!error) error = parts.check_file();
    if (error) fail(writer, error);
    return writer.path();
}

// What it said of the process while that lived.
void remove_live_file(const Directory& directory, const std::string& marker, std::uint32_t owner) {
    if (!marker.ends_with(marker_suffix)) return;
    for (const char* suffix : {live_suffix, new_live_suffix}) {
        const std::string name = beside_marker(marker, suffix);
        struct stat info;
        if (directory.look(name.c_str(), info) == 0 && S_ISREG(info.st_mode) && info.st_uid == owner)
            directory.remove_if(name.c_str(), info);
    }
}

}  // namespace

AdoptionResult adopt_spool(const std::string& spool_path, const AdoptionTerms& terms) {
    AdoptionResult result{Adopted::failed, {}, {}, false};
    result.outcome.spool_path = spool_path;
    const FileSizeSignalHeld held;
    try {
        SpoolView spool(spool_path);
        if (terms.owner && *terms.owner != spool.owner())
            throw std::runtime_error("it belongs to another user");
        TraceSettings settings = spool.settings();
        check_settings(settings);
        // Of a process on another host nothing can be known from here.
        if (settings.host != host_name() || !spool.process_gone() || !spool.lock()) {
            result.state = Adopted::alive;
            return result;
        }
        if (spool.removed()) {
            result.state = Adopted::gone;
            return result;
        }
        if (spool.has_other_names()) throw std::runtime_error("it has another name besides (a hard link)");
        settings.max_files = 0;  // recovery deletes nothing
        const std::string shown = terms.directory.empty() ? directory_of(settings.prefix) : terms.directory;
        const Directory directory = terms.descriptor >= 0 ? Directory(terms.descriptor) : Directory(shown);
        settings.prefix = shown + "/" + name_in_directory(settings.prefix);
        DeadRun run;
        SpoolHeader& h = spool.header();
        if (h.finalized.load()) {
            run.was_complete = true;
            result.outcome.trace_path = h.trace_paths[h.last_mark().part % 2].get();
        } else {
            result.outcome.trace_path = complete_trace(spool, settings, {shown, directory}, terms, run);
        }
        h.finalized.store(1);
        // Where it cannot be kept, and this process dies right now, the trace tells by its footer.
        static_cast<void>(spool.keep(h.finalized));
        // As the process itself does it.
        const bool told = !terms.marker.empty() && tell_complete(directory, terms.marker, spool.owner());
        if (!told && !terms.marker.empty()) directory.remove(terms.marker.c_str());
        remove_live_file(directory, terms.marker, spool.owner());
        const int stays = spool.remove();
        if (told && !stays) directory.remove(terms.marker.c_str());
        result.damage = std::move(run.damage);
        result.was_complete = run.was_complete;
        if (stays)
            result.outcome.error = std::strerror(stays);
        else
            result.outcome.spool_path.clear();
        result.state = Adopted::finished;
    } catch (const std::exception& error) {
        struct stat info;
        const bool gone = lstat(spool_path.c_str(), &info) != 0 && errno == ENOENT;
        result.state = gone ? Adopted::gone : Adopted::failed;
        if (!gone) result.outcome.error = error.what();
    }
    return result;
}

std::string trace_directory_of(const std::string& spool_path) {
    const SpoolCopy spool(spool_path);
    const SpoolHeader& h = spool.header();
    return directory_of(
        TraceSettings::decode({h.settings, std::min<std::size_t>(h.settings_bytes, sizeof h.settings)})
            .prefix);
}

}  // namespace dftrace
