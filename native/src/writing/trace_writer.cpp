// What a record becomes, and what is told of spans that have not ended: at the end of a run, and in the dumps
// before it.
#include "dftrace/writing/trace_writer.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

// What a track is called that bears the name of an event.
std::string plain_name(std::string_view json) {
    const std::optional<JsonName> parts = parts_of_json_name(json);
    return parts ? text_of_json_string(parts->name) : "unknown";
}

Record record_of(const OpenSpan& span) {
    Record r{};
    r.start = span.start;
    r.id = span.id;
    r.parent = span.parent;
    r.node = span.node;
    r.args = span.args;
    r.lane = span.lane;
    r.level = span.level;
    r.kind = Kind::span;
    r.flags = RecordFlag::unfinished;
    return r;
}

}  // namespace

TraceWriter::TraceWriter(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid)
    : settings_(settings),
      header_(header),
      formatter_(settings, shown_pid(settings, header.pid)),
      tracks_(formatter_),
      blocks_(settings, header, parent_pid, formatter_, tracks_) {}

void TraceWriter::introduce(Track& track) {
    blocks_.open();
    tracks_.introduce(track, blocks_.text());
}

void TraceWriter::forget_track(const Track& track) {
    tracks_.forget(track);
    track.each_tid([this](std::uint32_t tid) { blocks_.index().forget_track(tid); });
}

// A moment before the base is told as the base.
inline BlockReach TraceWriter::reach_in_line(std::uint64_t start_ns, std::uint64_t end_ns) const noexcept {
    std::uint64_t start = start_ns - start_ns % 1000, duration = end_ns - end_ns % 1000 - start;
    if (!settings_.epoch_us) [[likely]] {
        const std::uint64_t base = settings_.time_base_us * 1000;
        start = start_ns > base ? start_ns - base : 0;
        duration = end_ns - start_ns;
    }
    BlockReach reach{.first_ns = static_cast<std::int64_t>(start), .last_ns = 0};
    // Users may have given any.
    return __builtin_add_overflow(reach.first_ns, static_cast<std::int64_t>(duration), &reach.last_ns)
               ? BlockReach::everywhere()
               : reach;
}

// Nobody's record lies in the future; times that the user gave are his own business.
bool TraceWriter::plausible(const Record& r, const ClockMap& clock) const {
    if (!latest_ns_) return true;
    if (r.lane && (r.lane < first_task_lane || r.lane >= first_overlap_lane)) return false;
    if (r.flags & RecordFlag::absolute_time) return r.start < INT64_MAX && r.end < INT64_MAX;
    if (r.kind == Kind::lane_name) return r.lane != 0;
    const std::uint64_t earliest = clock.segments().front().ns - clock_margin_ns;
    const auto within = [&](std::uint64_t tick) {
        const std::uint64_t ns = clock.to_ns(tick);
        return ns >= earliest && ns <= latest_ns_;
    };
    return within(r.start) && (r.kind != Kind::span || (r.flags & RecordFlag::unfinished) || within(r.end));
}

[[gnu::noinline]] void TraceWriter::add_other_to_index(const Record& r, const BlobTables& tables) noexcept {
    constexpr std::string_view phases = "?XiCsfM";  // by kind
    const bool open = r.flags & RecordFlag::unfinished;
    blocks_.index().add_other(r.node, tables.name(r.node),
                              open ? 'B' : phases[static_cast<std::size_t>(r.kind)]);
}

[[gnu::noinline]] void TraceWriter::name_lane(const Record& r, const Track& track, const BlobTables& tables) {
    if (r.node)
        tracks_.name_lane(r.lane, plain_name(tables.name(r.node)), blocks_.text());
    else
        tracks_.name_task_lane(r.lane, track, blocks_.text());
    if (!keep_for_parts_) return;
    std::string told;
    append_json_string(told, tracks_.name_of(r.lane));
    keep_for_parts_(BlobKind::lane, r.lane, told);
}

// Names of tracks go to the block that is gathered, also where `out` is another text.
[[gnu::always_inline]] inline TraceWriter::Placed TraceWriter::format(ByteBuffer& out, const Record& r,
                                                                      Track& track, const BlobTables& tables,
                                                                      const ClockMap& clock) {
    if (r.kind == Kind::lane_name) {
        name_lane(r, track, tables);
        return {};
    }
    const bool absolute = r.flags & RecordFlag::absolute_time;
    const bool open = r.flags & RecordFlag::unfinished;
    const std::uint64_t base = settings_.epoch_us ? 0 : settings_.time_base_us * 1000;
    // Times before the base cannot be written.
    const std::uint64_t start = absolute ? std::max(r.start, base) : clock.to_ns(r.start);
    const std::uint64_t end =
        r.kind != Kind::span || open ? start : std::max(absolute ? r.end : clock.to_ns(r.end), start);
    RecordText text{tables.name(r.node), {}, {}};
    if (text.name.empty()) text.name = unknown_name;
    if (r.args && (settings_.user_args || r.kind != Kind::span)) text.args = tables.arguments(r.args);
    if (r.error) text.error = tables.exception_type(r.error);
    if (open) tracks_.introduce_open(track, blocks_.text());
    const TrackText at = tracks_.of(r, track, start, end, blocks_.text());
    formatter_.line(out, r, at.text, text, start, end);
    return {at.tid, reach_in_line(start, end)};
}

std::string TraceWriter::line_of(const Record& r, Track& track, const BlobTables& tables,
                                 const ClockMap& clock) {
    introduce(track);
    ByteBuffer out;
    format(out, r, track, tables, clock);
    return std::string(out.view());
}

// Samples are no events: neither an index nor the reach of a block knows them. False where it is none.
[[gnu::noinline]] bool TraceWriter::profile(const Record& r, const BlobTables& tables,
                                            const ClockMap& clock) {
    if (r.kind != Kind::profile || !r.lane || r.lane >= first_task_lane) return false;
    if (latest_ns_ && (clock.to_ns(r.end) > latest_ns_ || r.end < r.start)) return false;
    const std::string_view args = tables.arguments(r.args);
    if (args.empty()) return false;
    if (r.end < first_tick_) return true;
    formatter_.profile(blocks_.text(), r, args, clock.to_ns(r.start));
    blocks_.count_samples(r.level);
    return true;
}

void TraceWriter::one(const Record& r, Track& track, const BlobTables& tables, const ClockMap& clock) {
    // A crash of the machine can leave pages of a spool unwritten.
    if (r.kind < Kind::span || r.kind > Kind::lane_name || !plausible(r, clock)) {
        unreadable_ += !profile(r, tables, clock);
        return;
    }
    const bool absolute = r.flags & RecordFlag::absolute_time;
    const bool open = r.flags & RecordFlag::unfinished;
    const bool awaited = r.kind == Kind::span && !open_lines_.empty() && open_lines_.settle(r.id);
    if (first_tick_ && !open && !awaited && r.kind != Kind::lane_name) {
        const std::uint64_t ended = absolute || r.kind == Kind::span ? r.end : r.start;
        if (ended < (absolute ? clock.to_ns(first_tick_) : first_tick_)) {
            ++left_out_;
            return;
        }
    }
    const std::size_t before = blocks_.text().size();
    const Placed placed = format(blocks_.text(), r, track, tables, clock);
    if (r.kind == Kind::lane_name) return;
    if (r.kind == Kind::metadata && r.value) {
        const std::string_view line = blocks_.text().view().substr(before);
        blocks_.keep_fact(r.node, tables.name(r.node), line);
        if (keep_for_parts_) keep_for_parts_(BlobKind::fact, r.node, line);
    }
    if (r.kind != Kind::metadata) blocks_.reach().add(placed.reach.first_ns, placed.reach.last_ns);
    if (r.kind == Kind::span && !open) [[likely]] {
        blocks_.index().add_span(
            r.node, [&] { return tables.name(r.node); }, placed.tid, placed.reach.first_ns,
            placed.reach.last_ns, settings_.ids ? r.parent : no_parent);
    } else {
        blocks_.reach().endless |= open;
        add_other_to_index(r, tables);
    }
    if (open)
        blocks_.count_open_span();
    else
        blocks_.count(r.kind);
}

int TraceWriter::records(UnitHeader* unit, std::uint32_t& scan, std::uint32_t limit, Track& track,
                         const BlobTables& tables, const ClockMap& clock) {
    if (scan >= limit) return 0;
    if (const int error = blocks_.make_way()) return error;
    const Record* all = records_of(unit);
    introduce(track);
    while (scan < limit) {
        blocks_.touch(unit, scan);  // before the line: there may be memory for that, and none for this
        one(all[scan], track, tables, clock);
        blocks_.is_read_to(++scan);
        if (blocks_.full())
            if (const int error = blocks_.end_block()) return error;
    }
    return 0;
}

int TraceWriter::end_records() {
    if (const int error = flush()) return error;
    blocks_.enter(TraceStage::unfinished);
    return 0;
}

void TraceWriter::unfinished(const OpenSpan& span, Track& track, const BlobTables& tables,
                             const ClockMap& clock) {
    introduce(track);
    one(record_of(span), track, tables, clock);
}

void TraceWriter::awaited(const AwaitedSpan& span, Track& track, BlobTables& tables, const ClockMap& clock) {
    std::string members;
    const auto add = [&](AwaitedNumber which, std::string_view key, std::int64_t value) {
        if (span.has & which) members.append(key).append(std::to_string(value));
    };
    add(awaited_epoch, ",\"epoch\":", span.epoch);
    add(awaited_step, ",\"step\":", span.step);
    add(awaited_microbatches, ",\"microbatches\":", span.microbatches);
    Record r{};
    r.start = span.start;
    r.end = span.end;
    r.id = span.id;
    r.node = span.node;
    r.args = tables.add(std::move(members));
    r.lane = span.lane;
    r.level = 1;
    r.kind = Kind::span;
    if (!span.end) r.flags = RecordFlag::unfinished;
    introduce(track);
    one(r, track, tables, clock);
}

int TraceWriter::begin_dump() {
    open_lines_.begin();
    return blocks_.make_way();  // tracks are about to be named
}

void TraceWriter::open_now(const OpenSpan& span, Track& track, const BlobTables& tables,
                           const ClockMap& clock) {
    open_lines_.see(span.id, line_of(record_of(span), track, tables, clock));
}

// On tracks of their own: they seem to go on for ever, and would hold all that their thread did later.
int TraceWriter::lost_spans() {
    if (const int error = blocks_.make_way()) return error;
    std::map<std::uint32_t, std::uint32_t> lanes;
    for (const auto& [id, open] : open_lines_.take_lost()) {
        const std::uint32_t tid = track_of(open);
        const auto [lane, fresh] = lanes.try_emplace(tid);
        if (fresh)
            lane->second =
                tracks_.add_lane("open at an earlier dump · " + std::to_string(tid), blocks_.text());
        blocks_.text().append(on_track(open, lane->second));
        blocks_.reach() = BlockReach::everywhere();  // nobody has looked at its times
        blocks_.index().give_up();                   // nor at its name
        blocks_.count_open_span();
    }
    return 0;
}

bool TraceWriter::ended_since(const Record& r, Track& track, const BlobTables& tables,
                              const ClockMap& clock) {
    if (r.kind != Kind::span || !open_lines_.told(r.id)) return false;
    open_lines_.replace(r.id, line_of(r, track, tables, clock));
    return true;
}

int TraceWriter::note(std::string_view name_json, std::string_view args, Track& track, std::uint64_t id,
                      std::uint64_t ns) {
    if (const int error = blocks_.make_way()) return error;
    introduce(track);
    Record r{};
    r.id = id;
    r.level = 1;
    r.kind = Kind::instant;
    formatter_.line(blocks_.text(), r, track.text, {name_json, args, {}}, ns, ns);
    const BlockReach reach = reach_in_line(ns, ns);
    blocks_.reach().add(reach.first_ns, reach.last_ns);
    blocks_.index().add_other(0, name_json, 'i');
    blocks_.count(Kind::instant);
    return 0;
}

void TraceWriter::know(const BlobTables& tables) {
    for (const auto& [kind, number, text] : tables.told_by_parts())
        if (kind == BlobKind::lane)
            tracks_.know_lane(number, text_of_json_string(text));
        else
            blocks_.know_fact(number, tables.name(number), text);
}

int TraceWriter::resume() {
    std::string tail;
    if (const int error = blocks_.resume(settings_.flight_recorder ? &tail : nullptr)) return error;
    open_lines_.take_in(tail);
    // Those tracks hold slices that are not known here.
    if (parts().next_write() > 1) tracks_.resume(header_.last_mark().lanes);
    return 0;
}

}  // namespace dftrace
