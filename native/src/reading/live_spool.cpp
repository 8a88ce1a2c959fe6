// From copies of a spool's parts to what its threads are doing.
#include "dftrace/reading/live_spool.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "dftrace/index/frames.hpp"
#include "dftrace/reading/self_time.hpp"
#include "dftrace/reading/spool_copy.hpp"
#include "dftrace/spool/settings.hpp"
#include "dftrace/system/host_name.hpp"
#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_parts.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

// Looking must not become work: of one thread and of all together so many units are read at most.
constexpr std::size_t max_units_of_thread = 128;
constexpr std::size_t max_units_of_all = 1024;
constexpr std::size_t max_threads = 4096;
constexpr std::size_t max_links = 64;
constexpr std::size_t max_lists = 64;
constexpr std::size_t max_newest_args = 16;
// Of the spans of a thread that may be collectives, and of its collectives.
constexpr std::size_t max_maybe_calls = 4096;
constexpr std::size_t max_calls = 256;
constexpr std::string_view collectives = "comm";

// Of the clocks that ticks may come from, the one that fits: of this moment it says what the wall clock
// says, and the others are years off.
struct Present {
    std::uint64_t tick;
    std::uint64_t ns;
};

Present present_by(const ClockMap& clock) {
    const std::uint64_t wall = clock_ns(CLOCK_REALTIME);
    std::vector<std::uint64_t> ticks{clock_ns(CLOCK_MONOTONIC)};
#if defined(__x86_64__)
    ticks.push_back(__rdtsc());
#endif
    const auto off = [&](std::uint64_t tick) {
        const std::uint64_t ns = clock.to_ns(tick);
        return ns > wall ? ns - wall : wall - ns;
    };
    const std::uint64_t tick = *std::ranges::min_element(ticks, {}, off);
    return {tick, clock.to_ns(tick)};
}

std::string text_of(const char* text, std::size_t bytes) { return {text, strnlen(text, bytes)}; }

ProcessState state_of(const SpoolCopy& spool, const TraceSettings& settings) {
    if (settings.host != host_name()) return ProcessState::on_other_host;
    const ProcessIdentity process = ProcessIdentity::of(spool.header());
    // A process that became another program by exec lives, and holds no spool of before any more.
    const bool gone = (!process.elsewhere() && process.gone()) || !spool.held();
    return gone ? ProcessState::dead : ProcessState::alive;
}

std::uint64_t time_of(const Record& r) noexcept { return r.kind == Kind::span ? r.end : r.start; }
bool has_tick(const Record& r) noexcept { return !(r.flags & RecordFlag::absolute_time); }

// One that a thread recorded on a track that is no thread's.
struct SpanBeside {
    CoveringSpan span;  // its key is the number of the name
    std::uint32_t track;
    bool outermost;
};

// Of what overlaps others of its thread: nothing lies inside of it.
constexpr std::uint32_t track_alone = UINT32_MAX;

// One that has ended, with arguments: by its name it may be a collective.
struct MaybeCall {
    std::uint64_t start, end;
    std::uint32_t name, args;
};

// One thread while it is looked at.
struct Look {
    StackCopy stack;
    OpenSpan standing;  // where its Python stands
    UnitFacts newest;
    std::vector<UnitFacts> units;  // all that may be this thread's
    LiveThread thread;
    std::vector<CoveringSpan> spans;  // on its own track; keys are numbers of names
    std::vector<SpanBeside> beside;
    std::vector<std::pair<std::uint64_t, std::uint32_t>> args_seen;  // time and number, newest first
    std::vector<MaybeCall> calls;                                    // newest first
};

// To the unit that the thread fills now: it may have gone on since the units were listed. False where that
// cannot be told from here, since one on the way was used again.
bool go_to_newest(const SpoolCopy& copy, Look& look) {
    for (std::size_t links = 0; links < max_links; ++links) {
        const std::optional<UnitFacts> now = copy.unit(look.newest.index);
        if (!now || now->sequence != look.newest.sequence || now->kind == UnitKind::free) return false;
        if (now->next == 0) return true;
        const std::optional<UnitFacts> next = copy.unit(now->next);
        const bool follows = next && next->kind == UnitKind::ring && next->may_hold_records() &&
                             next->owner == now->owner && next->sequence > now->sequence &&
                             next->before == now->before + now->capacity;
        if (!follows) return false;
        look.units.push_back(*next);
        look.newest = *next;
    }
    return false;
}

// One that was released as they were listed is not the newest by now, and still tells how far the thread was.
void take_newest_listed(Look& look) {
    for (const UnitFacts& unit : look.units)
        if (unit.kind != UnitKind::thread && unit.sequence > look.newest.sequence) look.newest = unit;
}

// The units are listed one after the other: what the thread filled while this went on may stand where was
// looked before.
bool find_newest(const SpoolCopy& copy, std::size_t& lists_left, Look& look) {
    while (!go_to_newest(copy, look)) {
        if (lists_left == 0) return false;
        --lists_left;
        std::erase_if(look.units, [](const UnitFacts& unit) { return unit.kind != UnitKind::thread; });
        if (!look.units.empty()) look.newest = look.units.front();
        for (const UnitFacts& unit : copy.units())
            if (unit.owner == look.newest.owner && unit.may_hold_records() && unit.kind != UnitKind::thread)
                look.units.push_back(unit);
        take_newest_listed(look);
    }
    return true;
}

std::vector<Look> looks_at_threads(const SpoolCopy& copy, const std::vector<UnitFacts>& units) {
    std::unordered_map<std::uint32_t, std::vector<UnitFacts>> by_owner;
    for (const UnitFacts& unit : units)
        if (unit.may_hold_records()) by_owner[unit.owner].push_back(unit);
    std::vector<Look> looks;
    std::unordered_map<std::uint64_t, OpenSpan> standing;
    for (const UnitFacts& unit : units) {
        if (unit.kind != UnitKind::thread || !unit.may_hold_records()) continue;
        auto& own = by_owner[unit.owner];
        if (own.empty() || looks.size() == max_threads) continue;
        std::optional<StackCopy> stack = copy.stack(unit);
        if (!stack) continue;
        if (stack->tid == sampler_tid) {
            for (const OpenSpan& one : copy.standing(unit)) standing[one.id] = one;
            continue;
        }
        Look look{std::move(*stack), {}, unit, std::exchange(own, {}), {}, {}, {}, {}, {}};
        take_newest_listed(look);
        looks.push_back(std::move(look));
    }
    for (Look& look : looks)
        if (const auto found = standing.find(look.stack.tid); found != standing.end())
            look.standing = found->second;
    return looks;
}

std::uint64_t newest_tick(const SpoolCopy& copy, const std::vector<Look>& looks, const ClockMap& clock) {
    std::uint64_t newest = clock.segments().back().tick;
    std::vector<Record> records;
    for (const Look& look : looks) {
        if (!copy.records(look.newest, records)) records.clear();
        for (const Record& r : records)
            if (has_tick(r)) newest = std::max(newest, time_of(r));
        for (const auto* spans : {&look.stack.open, &look.stack.tasks})
            for (const OpenSpan& span : *spans) newest = std::max(newest, span.start);
    }
    return newest;
}

// The open spans of which a record is there: what was stored as a record has ended, though it may still
// stand among the open ones.
class Ended {
  public:
    explicit Ended(const StackCopy& stack) {
        for (const auto* spans : {&stack.open, &stack.tasks})
            for (const OpenSpan& span : *spans) open_.insert(span.id);
    }
    void note(const std::vector<Record>& records) {
        for (const Record& r : records)
            if (r.kind == Kind::span && open_.contains(r.id)) ended_.insert(r.id);
    }
    bool operator()(const OpenSpan& span) const { return ended_.contains(span.id); }

  private:
    std::unordered_set<std::uint64_t> open_, ended_;
};

// The unit whose records come right before those of `later`, if it is still there.
const UnitFacts* unit_before(const std::vector<UnitFacts>& earlier, const UnitFacts& later) {
    const UnitFacts* found = nullptr;
    for (const UnitFacts& unit : earlier)
        if (unit.before + unit.capacity == later.before && unit.sequence < later.sequence &&
            unit.committed == unit.capacity && (!found || unit.sequence > found->sequence))
            found = &unit;
    return found;
}

// Goes back through the thread's records to the beginning of the window, or as far as they are there.
class Window {
  public:
    Window(const ClockMap& clock, std::uint64_t from, std::uint64_t to)
        : clock_(clock), from_(from), to_(to) {}

    // Newest first. False when the window's beginning was passed.
    bool take(const std::vector<Record>& records, Look& look) {
        for (std::size_t i = records.size(); i-- > 0;) {
            const Record& r = records[i];
            if (!has_tick(r) || !is_event(r.kind)) continue;
            const std::uint64_t end = clock_.to_ns(time_of(r));
            if (!look.thread.last_ns) look.thread.last_ns = std::min(end, to_);
            note_arguments(r, end, look);
            if (end < from_) {
                // What is older only says who has called what.
                for (std::size_t older = i + 1; older-- > 0;) note_call(records[older], look);
                return false;
            }
            known_from_ = end;
            if (end > to_) continue;  // recorded while this is read
            note_call(r, look);
            ++look.thread.events;
            if (r.kind == Kind::span) put(r, {clock_.to_ns(r.start), end, r.node}, look);
        }
        return true;
    }

    // `complete`: all that the thread recorded in the window was taken.
    void end(Look& look, bool complete) const {
        const std::uint64_t from = complete ? from_ : std::clamp(known_from_, from_, to_);
        for (const auto* open : {&look.stack.open, &look.stack.tasks})
            for (const OpenSpan& span : *open)
                look.spans.push_back({clock_.to_ns(span.start), to_, span.node});
        look.thread.covered_ns = to_ - from;
    }

  private:
    static void put(const Record& r, const CoveringSpan& span, Look& look) {
        const std::uint32_t track = r.flags & RecordFlag::overlaps ? track_alone
                                    : r.lane                       ? r.lane
                                                                   : look.stack.tid;
        if (track < first_lane)
            look.spans.push_back(span);
        else
            look.beside.push_back({span, track, is_outermost(r.parent)});
    }
    void note_call(const Record& r, Look& look) const {
        if (r.kind == Kind::span && r.args && has_tick(r) && look.calls.size() < max_maybe_calls)
            look.calls.push_back({clock_.to_ns(r.start), clock_.to_ns(r.end), r.node, r.args});
    }
    void note_arguments(const Record& r, std::uint64_t end, Look& look) const {
        auto& seen = look.args_seen;
        // A counter's arguments are its values.
        if (!r.args || r.kind == Kind::counter || seen.size() >= max_newest_args) return;
        if (std::ranges::find(seen, r.args, [](const auto& one) { return one.second; }) == seen.end())
            seen.emplace_back(std::min(end, to_), r.args);
    }

    const ClockMap& clock_;
    std::uint64_t from_;
    std::uint64_t to_;
    std::uint64_t known_from_ = UINT64_MAX;
};

void look_back(const SpoolCopy& copy, const ClockMap& clock, std::uint64_t from_ns, std::uint64_t now_ns,
               std::size_t& units_left, std::size_t& lists_left, Look& look) {
    const bool found = find_newest(copy, lists_left, look);
    Window window(clock, from_ns, now_ns);
    Ended ended(look.stack);
    std::vector<Record> records;
    std::optional<UnitFacts> unit = copy.records(look.newest, records);
    if (unit) look.newest = *unit;
    bool complete = false;
    for (std::size_t count = 1; unit; ++count) {
        ended.note(records);
        complete = (!window.take(records, look) || unit->before == 0) && found;
        if (complete || count == max_units_of_thread || units_left == 0) break;
        --units_left;
        const UnitFacts* previous = unit_before(look.units, *unit);
        unit = previous ? copy.records(*previous, records) : std::nullopt;
    }
    for (auto* open : {&look.stack.open, &look.stack.tasks}) std::erase_if(*open, ended);
    std::ranges::sort(look.stack.tasks, {}, &OpenSpan::start);
    window.end(look, complete);
}

// Names and arguments, of all that is shown.
struct Shown {
    Texts names, args;

    Shown(const SpoolCopy& copy, std::vector<Look>& looks) {
        for (const Look& look : looks) {
            if (look.standing.args) args.try_emplace(look.standing.args);
            for (const MaybeCall& call : look.calls) names.try_emplace(call.name);
            for (const auto* spans : {&look.stack.open, &look.stack.tasks})
                for (const OpenSpan& span : *spans) {
                    if (span.node) names.try_emplace(span.node);
                    if (span.args) args.try_emplace(span.args);
                }
            for (const CoveringSpan& span : look.spans) names.try_emplace(span.key);
            for (const SpanBeside& one : look.beside) names.try_emplace(one.span.key);
            for (const auto& [ns, number] : look.args_seen) args.try_emplace(number);
        }
        // Listed anew: what was just recorded may stand in a unit that is new.
        const std::vector<UnitFacts> units = copy.units();
        copy.fill_names(units, names);
        for (Look& look : looks) {
            std::erase_if(look.calls, [this](const MaybeCall& call) { return !is_collective(call.name); });
            if (look.calls.size() > max_calls) look.calls.resize(max_calls);
            for (const MaybeCall& call : look.calls) args.try_emplace(call.args);
        }
        copy.fill_arguments(units, args);
    }

    std::optional<LiveName> name(std::uint32_t number) const {
        const std::optional<JsonName> parts = parts_of_json_name(text(names, number));
        if (!parts) return std::nullopt;
        return LiveName{text_of_json_string(parts->name), text_of_json_string(parts->category)};
    }
    std::string arguments(std::uint32_t number) const { return std::string(text(args, number)); }

  private:
    bool is_collective(std::uint32_t number) {
        const auto [at, is_new] = collectives_.try_emplace(number);
        if (is_new) {
            const std::optional<LiveName> found = name(number);
            at->second = found && found->category == collectives;
        }
        return at->second;
    }

    std::unordered_map<std::uint32_t, bool> collectives_;

    static std::string_view text(const Texts& texts, std::uint32_t number) {
        const auto it = texts.find(number);
        return it == texts.end() ? std::string_view() : it->second;
    }
};

// All but frames, which are around what the thread does.
std::vector<CoveringSpan> without_frames(Look& look, const Shown& shown) {
    std::unordered_map<std::uint32_t, bool> known;
    const auto has_frame_name = [&](std::uint32_t number) {
        const auto [at, is_new] = known.try_emplace(number);
        if (is_new) {
            const std::optional<LiveName> name = shown.name(number);
            at->second = name && is_frame_name(name->category, name->name);
        }
        return at->second;
    };
    // Those that begin last come first, and of each track the earliest end of those so far is known.
    std::ranges::sort(look.beside, std::greater<>{}, [](const SpanBeside& one) {
        return std::tuple(one.track, one.span.start, ~one.span.end);
    });
    std::uint32_t track = 0;
    std::uint64_t inner_end = UINT64_MAX;
    for (const auto& [span, on, outermost] : look.beside) {
        if (on != track || on == track_alone) inner_end = UINT64_MAX;
        track = on;
        if (!outermost || inner_end <= span.end || !has_frame_name(span.key)) look.spans.push_back(span);
        if (span.end > span.start) inner_end = std::min(inner_end, span.end);
    }
    return std::move(look.spans);
}

LiveThread thread_of(Look& look, const Shown& shown, const ClockMap& clock, std::uint64_t now_ns) {
    LiveThread thread = look.thread;
    thread.tid = look.stack.tid;
    thread.name = look.stack.name;
    thread.ended = look.stack.ended;
    thread.depth = look.stack.depth;
    thread.records = look.newest.before + look.newest.committed;
    const auto spans = [&](const std::vector<OpenSpan>& open) {
        std::vector<LiveSpan> told;
        for (const OpenSpan& span : open)
            told.push_back({span.id, span.parent, std::min(clock.to_ns(span.start), now_ns), span.level,
                            shown.name(span.node), shown.arguments(span.args)});
        return told;
    };
    thread.stack = shown.arguments(look.standing.args);
    if (!thread.stack.empty()) thread.stack_since_ns = std::min(clock.to_ns(look.standing.start), now_ns);
    thread.open = spans(look.stack.open);
    thread.tasks = spans(look.stack.tasks);
    std::map<std::optional<LiveName>, std::uint64_t> by_name;
    for (const auto& [number, ns] :
         self_times(without_frames(look, shown), now_ns - thread.covered_ns, now_ns))
        by_name[shown.name(number)] += ns;
    thread.self_ns.assign(by_name.begin(), by_name.end());
    for (const MaybeCall& call : look.calls)
        if (std::optional<LiveName> name = shown.name(call.name))
            thread.calls.push_back({call.start, call.end, std::move(*name), shown.arguments(call.args)});
    for (const auto& [ns, number] : look.args_seen)
        if (std::string args = shown.arguments(number); !args.empty())
            thread.newest_args.emplace_back(ns, std::move(args));
    return thread;
}

std::string first_line(const std::string& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

// By /proc, which asks nobody and stops nothing.
std::string kernel_of(std::uint32_t pid, std::uint32_t tid) {
    const std::string thread = "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid);
    const std::string stat = first_line(thread + "/stat");
    // Its name, which may have brackets, stands before.
    const std::size_t name = stat.rfind(") ");
    if (name == std::string::npos || name + 2 >= stat.size()) return {};
    std::string found(1, stat[name + 2]);
    const std::string place = first_line(thread + "/wchan");
    const bool is_name = !place.empty() && place != "0" && std::ranges::all_of(place, [](unsigned char c) {
        return std::isalnum(c) || c == '_' || c == '.';
    });
    if (is_name) found.append(" ").append(place);
    return found;
}

// In place of what stands there by that name.
void put_member(std::string& members, std::string_view key, std::uint32_t number) {
    const std::string text = std::to_string(number);
    const std::string_view there = json_member(members, key);
    if (there.empty())
        members.append(",\"").append(key).append("\":").append(text);
    else
        members.replace(static_cast<std::size_t>(there.data() - members.data()), there.size(), text);
}

}  // namespace

LiveSpool look_into(const std::string& path, std::uint64_t window_ns) {
    const SpoolCopy copy(path);
    const SpoolHeader& h = copy.header();
    const TraceSettings settings =
        TraceSettings::decode({h.settings, std::min<std::size_t>(h.settings_bytes, sizeof h.settings)});
    const ClockMap clock = copy.clock();
    LiveSpool spool;
    spool.pid = h.pid;
    spool.parent_pid = h.parent_pid;
    spool.host = settings.host;
    spool.run = text_of(h.run, sizeof h.run);
    spool.header = is_json_members(settings.header_json) ? settings.header_json : std::string();
    for (const auto& [key, number] : h.late_place.members()) put_member(spool.header, key, number);
    spool.state = state_of(copy, settings);
    spool.prefix = settings.prefix;
    spool.trace_path = h.trace_paths[h.last_mark().part % 2].get();
    spool.spool_bytes = std::uint64_t{h.units.load()} * unit_bytes;
    spool.losses = h.losses();
    spool.overwritten = h.overwritten.load();
    spool.write_error = h.write_error.load();
    spool.flight_recorder = settings.flight_recorder;
    spool.finished = h.finalized.load() != 0;

    const bool of_this_boot = text_of(h.boot_id, sizeof h.boot_id) == ProcessIdentity::self().boot_id;
    spool.started_ns = clock.segments().front().ns;
    // Before the stacks are read: what they show was so at this moment, or came after it.
    const Present present = present_by(clock);
    spool.present_ns = of_this_boot ? present.ns : clock_ns(CLOCK_REALTIME);
    std::vector<Look> looks = looks_at_threads(copy, copy.units());
    spool.now_ns = spool.state == ProcessState::alive
                       ? spool.present_ns
                       : std::min(clock.to_ns(newest_tick(copy, looks, clock)), spool.present_ns);
    // Before it began there was nothing.
    const std::uint64_t begin = spool.now_ns - std::min(window_ns, spool.now_ns);
    const std::uint64_t from = std::min(std::max(begin, spool.started_ns), spool.now_ns);
    std::size_t units_left = max_units_of_all, lists_left = max_lists;
    for (Look& look : looks) look_back(copy, clock, from, spool.now_ns, units_left, lists_left, look);
    const Shown shown(copy, looks);
    const bool is_here =
        spool.state == ProcessState::alive && of_this_boot && !ProcessIdentity::of(h).elsewhere();
    for (Look& look : looks) {
        LiveThread& thread = spool.threads.emplace_back(thread_of(look, shown, clock, spool.now_ns));
        if (is_here && !thread.ended && (!thread.open.empty() || !thread.tasks.empty()))
            thread.kernel = kernel_of(spool.pid, thread.tid);
    }
    return spool;
}

std::uint64_t unwritten_events(const std::string& path) {
    const SpoolCopy copy(path);
    std::uint64_t events = 0;
    std::vector<Record> records;
    for (const UnitFacts& unit : copy.units()) {
        const bool some = unit.kind != UnitKind::free && unit.may_hold_records();
        if (!some || unit.consumed == unit.committed) continue;
        // One that was written meanwhile, and used again, has nothing any more.
        const std::optional<UnitFacts> now = copy.records(unit, records);
        if (!now) continue;
        const auto first = records.begin() + now->consumed;
        events += static_cast<std::uint64_t>(
            std::count_if(first, records.end(), [](const Record& r) { return is_event(r.kind); }));
    }
    return events;
}

}  // namespace dftrace
