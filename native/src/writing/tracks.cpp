// Placing intervals on lanes, and naming tracks.
#include "dftrace/writing/tracks.hpp"

namespace dftrace {

bool Lanes::fits(Lane& lane, Interval interval) const {
    std::size_t keep = lane.outermost.size();
    while (keep > 0 && lane.outermost[keep - 1].start >= interval.start) {
        // Behind the interval, or reaching out of it: this lane is not in order for it.
        if (!nest_ || lane.outermost[keep - 1].end > interval.end) return false;
        --keep;
    }
    if (keep > 0 && lane.outermost[keep - 1].end > interval.start) return false;
    if (interval.start < lane.closed_before) return false;
    lane.outermost.resize(keep);
    lane.outermost.push_back(interval);
    constexpr std::size_t remembered = 1024;
    if (lane.outermost.size() > 2 * remembered) {
        lane.closed_before = lane.outermost[remembered - 1].end;
        lane.outermost.erase(lane.outermost.begin(), lane.outermost.begin() + remembered);
    }
    return true;
}

std::size_t Lanes::place(std::uint64_t start, std::uint64_t end) {
    for (std::size_t i = 0; i < lanes_.size(); ++i)
        if (fits(lanes_[i], {start, end})) return i;
    lanes_.push_back({{{start, end}}, 0});
    return lanes_.size() - 1;
}

void Tracks::name(std::uint32_t tid, const std::string& name, ByteBuffer& lines) {
    formatter_.track_name(lines, tid, name);
    names_[tid] = name;
}

void Tracks::introduce(Track& track, ByteBuffer& lines) {
    if (track.named) return;
    track.text = formatter_.track(track.tid);
    // What has ended on a track apart has lanes of its own.
    if (!track.name.empty() && !track.apart()) name(track.tid, track.name, lines);
    track.named = true;  // last: there may be no memory for the others
}

void Tracks::introduce_open(const Track& track, ByteBuffer& lines) {
    if (track.apart() && !names_.contains(track.tid)) name(track.tid, track.name + " · open", lines);
}

void Tracks::name_lane(std::uint32_t lane, const std::string& given, ByteBuffer& lines) {
    name(lane, given, lines);
    named_tracks_[lane].name = given;
}

void Tracks::know_lane(std::uint32_t lane, const std::string& given) {
    if (!is_track_apart(lane)) return;
    names_[lane] = given;
    named_tracks_[lane].name = given;
}

void Tracks::name_task_lane(std::uint32_t lane, const Track& track, ByteBuffer& lines) {
    name(lane, track.name + " · task lane " + std::to_string(lane - first_task_lane + 1), lines);
}

std::uint32_t Tracks::add_lane(const std::string& given, ByteBuffer& lines) {
    const std::uint32_t tid = first_overlap_lane + lanes_made_++;
    name(tid, given, lines);
    return tid;
}

TrackText Tracks::on_lane(const Record& record, Track& track, std::uint64_t start_ns, std::uint64_t end_ns,
                          ByteBuffer& lines) {
    const bool logged = record.flags & RecordFlag::absolute_time;
    std::uint32_t tid = record.lane;
    if (record.kind == Kind::span && record.lane && logged)
        tid = on_named_track(record.lane, start_ns, end_ns, lines);
    else if (record.kind == Kind::span && (logged || (record.flags & RecordFlag::overlaps)))
        tid = beside_thread(track, logged, start_ns, end_ns, lines);
    std::string& text = lane_texts_[tid];
    if (text.empty()) text = formatter_.track(tid);
    return {tid, text};
}

std::uint32_t Tracks::on_named_track(std::uint32_t number, std::uint64_t start_ns, std::uint64_t end_ns,
                                     ByteBuffer& lines) {
    NamedTrack& named = named_tracks_[number];
    const std::size_t lane = named.lanes.place(start_ns, end_ns);
    while (lane >= named.tids.size()) {
        const bool own = named.tids.empty();
        named.tids.push_back(own ? number : first_logged_lane + lanes_made_++);
        if (!own) name(named.tids.back(), named.name + " " + std::to_string(named.tids.size()), lines);
    }
    return named.tids[lane];
}

std::uint32_t Tracks::beside_thread(Track& track, bool logged, std::uint64_t start_ns, std::uint64_t end_ns,
                                    ByteBuffer& lines) {
    std::vector<std::uint32_t>& tids = logged ? track.logged_tids : track.overlap_tids;
    const std::size_t lane = (logged ? track.logged : track.overlaps).place(start_ns, end_ns);
    while (lane >= tids.size()) {  // more than one where there was no memory for those before
        tids.push_back((logged ? first_logged_lane : first_overlap_lane) + lanes_made_++);
        const char* kind = logged ? " · logged" : track.apart() ? "" : " · overlapping";
        name(tids.back(), track.name + kind + (lane ? " " + std::to_string(lane + 1) : ""), lines);
    }
    return tids[lane];
}

void Tracks::forget(const Track& track) noexcept {
    track.each_tid([this](std::uint32_t tid) {
        names_.erase(tid);
        lane_texts_.erase(tid);
    });
}

void Tracks::tell_names(ByteBuffer& out) const {
    for (const auto& [tid, text] : names_) formatter_.track_name(out, tid, text);
}

}  // namespace dftrace
