// What a record becomes: a line on the track where it belongs.
#include <algorithm>
#include <optional>
#include <string>

#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

namespace {

// What a track is called that bears the name of an event.
std::string plain_name(std::string_view json) {
    const std::optional<JsonName> parts = parts_of_json_name(json);
    return parts ? text_of_json_string(parts->name) : "unknown";
}

}  // namespace

std::uint32_t TraceWriter::lane_of(const Record& record, Track& track, std::uint64_t start_ns,
                                   std::uint64_t end_ns) {
    std::uint32_t tid = 0;
    if (record.kind == Kind::span && record.lane && (record.flags & RecordFlag::absolute_time)) {
        NamedTrack& named = named_tracks_[record.lane];
        const std::size_t lane = named.lanes.place(start_ns, end_ns);
        while (lane >= named.tids.size()) {
            const bool own = named.tids.empty();
            named.tids.push_back(own ? record.lane : first_logged_lane + lanes_made_++);
            if (!own) name(named.tids.back(), named.name + " " + std::to_string(named.tids.size()));
        }
        tid = named.tids[lane];
    } else if (record.kind == Kind::span &&
               (record.flags & (RecordFlag::overlaps | RecordFlag::absolute_time))) {
        const bool logged = record.flags & RecordFlag::absolute_time;
        Lanes& lanes = logged ? track.logged : track.overlaps;
        std::vector<std::uint32_t>& tids = logged ? track.logged_tids : track.overlap_tids;
        const std::size_t lane = lanes.place(start_ns, end_ns);
        while (lane >= tids.size()) {  // more than one where there was no memory for those before
            tids.push_back((logged ? first_logged_lane : first_overlap_lane) + lanes_made_++);
            const char* kind = logged ? " · logged" : track.apart() ? "" : " · overlapping";
            name(tids.back(), track.name + kind + (lane ? " " + std::to_string(lane + 1) : ""));
        }
        tid = tids[lane];
    } else {
        tid = record.lane;
    }
    std::string& text = lane_texts_[tid];
    if (text.empty()) text = formatter_.track(tid);
    return tid;
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

void TraceWriter::add_other_to_index(const Record& r, const BlobTables& tables) noexcept {
    constexpr std::string_view phases = "?XiCsfM";  // by kind
    const bool open = r.flags & RecordFlag::unfinished;
    index_.add_other(r.node, tables.name(r.node), open ? 'B' : phases[static_cast<std::size_t>(r.kind)]);
}

[[gnu::always_inline]] inline TraceWriter::Placed TraceWriter::format(ByteBuffer& out, const Record& r,
                                                                      Track& track, const BlobTables& tables,
                                                                      const ClockMap& clock) {
    const bool absolute = r.flags & RecordFlag::absolute_time;
    const bool open = r.flags & RecordFlag::unfinished;
    const std::uint64_t base = settings_.epoch_us ? 0 : settings_.time_base_us * 1000;
    // Times before the base cannot be written.
    const std::uint64_t start = absolute ? std::max(r.start, base) : clock.to_ns(r.start);
    if (r.kind == Kind::lane_name) {
        const std::string given =
            r.node ? plain_name(tables.name(r.node))
                   : track.name + " · task lane " + std::to_string(r.lane - first_task_lane + 1);
        name(r.lane, given);
        if (r.node) named_tracks_[r.lane].name = given;
        return {};
    }
    const std::uint64_t end =
        r.kind != Kind::span || open ? start : std::max(absolute ? r.end : clock.to_ns(r.end), start);
    RecordText text{tables.name(r.node), {}, {}};
    if (text.name.empty()) text.name = unknown_name;
    if (r.args && (settings_.user_args || r.kind != Kind::span)) text.args = tables.arguments(r.args);
    if (r.error) text.error = tables.exception_type(r.error);
    if (open && track.apart() && !names_for_next_part_.contains(track.tid))
        name(track.tid, track.name + " · open");
    const bool on_lane =
        r.lane || (r.kind == Kind::span && (r.flags & (RecordFlag::overlaps | RecordFlag::absolute_time)));
    const std::uint32_t tid = on_lane ? lane_of(r, track, start, end) : track.tid;
    formatter_.line(out, r, on_lane ? lane_texts_[tid] : track.text, text, start, end);
    return {tid, reach_in_line(start, end)};
}

void TraceWriter::one(const Record& r, Track& track, const BlobTables& tables, const ClockMap& clock) {
    // A crash of the machine can leave pages of a spool unwritten.
    if (r.kind < Kind::span || r.kind > Kind::lane_name || !plausible(r, clock)) {
        ++unreadable_;
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
    const std::size_t before = text_.size();
    const Placed placed = format(text_, r, track, tables, clock);
    if (r.kind == Kind::metadata && r.value)
        keep_fact(r.node, tables.name(r.node), text_.view().substr(before));
    if (r.kind != Kind::lane_name) {
        if (r.kind != Kind::metadata) reach_.add(placed.reach.first_ns, placed.reach.last_ns);
        if (r.kind == Kind::span && !open) [[likely]] {
            index_.add_span(
                r.node, [&] { return tables.name(r.node); }, placed.tid, placed.reach.first_ns,
                placed.reach.last_ns, settings_.ids ? r.parent : no_parent);
        } else {
            reach_.endless |= open;
            add_other_to_index(r, tables);
        }
    }
    if (open)
        ++lines_[0];
    else if (r.kind != Kind::lane_name)
        count(r.kind);
}

TraceWriter::Placed TraceWriter::line(ByteBuffer& out, const Record& r, Track& track,
                                      const BlobTables& tables, const ClockMap& clock) {
    return format(out, r, track, tables, clock);
}

}  // namespace dftrace
