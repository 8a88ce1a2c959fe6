// Blocks of lines into the trace file, and the marks in the spool.
#include "dftrace/trace_writer.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <numeric>

namespace dftrace {

std::uint32_t shown_pid(const TraceSettings& settings, std::uint32_t pid) {
    return settings.shown_pid ? settings.shown_pid : pid;
}

std::string file_stem(const TraceSettings& settings, std::uint32_t pid) {
    return settings.prefix + "-" + settings.host + "-" + std::to_string(shown_pid(settings, pid));
}

TraceWriter::TraceWriter(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid)
    : settings_(settings),
      header_(header),
      formatter_(settings, shown_pid(settings, header.pid)),
      codec_(make_codec(settings.compression, settings.compression_level)),
      parent_pid_(parent_pid) {}

std::uint64_t TraceWriter::lines_waiting() const noexcept {
    return std::accumulate(std::begin(lines_), std::end(lines_), std::uint64_t{0}) - written_lines_;
}

void TraceWriter::name_track(Track& track) {
    if (!opened_) {
        // The opening and the header come with the first thing there is to say.
        formatter_.opening(text_);
        formatter_.header(text_, parent_pid_, tick_source.name());
        opened_ = true;
    }
    if (track.named) return;
    track.named = true;
    track.text = formatter_.track(track.tid);
    if (!track.name.empty()) formatter_.track_name(text_, track.tid, track.name);
}

std::string_view TraceWriter::lane_track(const Record& record, Track& track, std::uint64_t start_ns,
                                         std::uint64_t end_ns) {
    std::uint32_t tid = 0;
    if (record.kind == Kind::span && (record.flags & (RecordFlag::overlaps | RecordFlag::absolute_time))) {
        const bool logged = record.flags & RecordFlag::absolute_time;
        Lanes& lanes = logged ? track.logged : track.overlaps;
        std::vector<std::uint32_t>& tids = logged ? track.logged_tids : track.overlap_tids;
        const std::size_t lane = lanes.place(start_ns, end_ns);
        if (lane == tids.size()) {
            tids.push_back((logged ? first_logged_lane : first_overlap_lane) + lanes_made_++);
            formatter_.track_name(text_, tids.back(),
                                  track.name + (logged ? " · logged" : " · overlapping") +
                                      (lane ? " " + std::to_string(lane + 1) : ""));
        }
        tid = tids[lane];
    } else {
        tid = record.lane;
    }
    std::string& text = lane_texts_[tid];
    if (text.empty()) text = formatter_.track(tid);
    return text;
}

void TraceWriter::one(const Record& r, Track& track, const BlobTables& tables, const ClockMap& clock) {
    // A crash of the machine can leave pages of a spool unwritten.
    if (r.kind < Kind::span || r.kind > Kind::lane_name) return;
    const bool absolute = r.flags & RecordFlag::absolute_time;
    const std::uint64_t base = settings_.epoch_us ? 0 : settings_.time_base_us * 1000;
    // Times before the base cannot be written.
    const std::uint64_t start = absolute ? std::max(r.start, base) : clock.to_ns(r.start);
    if (r.kind == Kind::lane_name) {
        formatter_.track_name(text_, r.lane,
                              track.name + " · task lane " + std::to_string(r.lane - first_task_lane + 1));
        return;
    }
    const std::uint64_t end = r.kind != Kind::span || (r.flags & RecordFlag::unfinished) ? start
                              : absolute ? std::max(r.end, start)
                                         : clock.to_ns(r.end);
    RecordText text{tables.name(r.node), {}, {}};
    // There was no room for the name: the line still has to be one.
    if (text.name.empty()) text.name = R"("name":"unknown","cat":"unknown")";
    if (r.args && (settings_.user_args || r.kind != Kind::span)) text.args = tables.arguments(r.args);
    if (r.error) text.error = tables.name(r.error);
    const bool on_lane =
        r.lane || (r.kind == Kind::span && (r.flags & (RecordFlag::overlaps | RecordFlag::absolute_time)));
    const std::string_view where = on_lane ? lane_track(r, track, start, end) : std::string_view(track.text);
    formatter_.line(text_, r, where, text, start, end);
    if (r.flags & RecordFlag::unfinished)
        ++lines_[0];
    else
        count(r.kind);
}

bool TraceWriter::records(UnitHeader* unit, std::uint32_t& scan, std::uint32_t limit, Track& track,
                          const BlobTables& tables, const ClockMap& clock) {
    if (scan >= limit) return true;
    // A block that failed goes first: its text must not grow any more.
    if (!block_.empty() && flush() != 0) return false;
    const Record* all = records_of(unit);
    name_track(track);
    const auto touch = [&] {
        if (!touched_.empty() && touched_.back().first == unit)
            touched_.back().second = scan;
        else
            touched_.emplace_back(unit, scan);
    };
    std::uint32_t written = scan;
    while (scan < limit) {
        one(all[scan], track, tables, clock);
        ++scan;
        if (text_.size() >= settings_.block_bytes) {
            touch();
            if (flush() != 0) return false;
            written = scan;
        }
    }
    // Not for what has just been written: the unit may soon be another thread's, and the next write
    // would tell of its records as if they were in the file.
    if (scan != written) touch();
    return true;
}

int TraceWriter::end_records() {
    if (const int error = flush()) return error;
    stage_ = std::max(stage_, TraceStage::unfinished);
    return 0;
}

void TraceWriter::unfinished(const OpenSpan& span, Track& track, const BlobTables& tables,
                             const ClockMap& clock) {
    name_track(track);
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
    one(r, track, tables, clock);
}

void TraceWriter::announce(const std::string& path) {
    const std::size_t bytes = std::min(path.size(), sizeof header_.trace_path - 1);
    header_.trace_path_bytes.store(0, std::memory_order_release);
    std::copy_n(path.data(), bytes, header_.trace_path);
    header_.trace_path_bytes.store(static_cast<std::uint32_t>(bytes), std::memory_order_release);
}

int TraceWriter::flush() {
    if (text_.size() == 0) return 0;
    if (block_.empty()) codec_->append(block_, text_.view());
    if (!file_.is_open()) {
        // Named in the spool before it is there: whoever finishes this trace finds the file even if
        // the process dies between the two.
        last_error_ = file_.create(file_stem(settings_, header_.pid), suffix_of(settings_.compression),
                                   [this](const std::string& path) { announce(path); });
        if (last_error_) return last_error_;
    }
    const std::uint64_t number = header_.write_number.load(std::memory_order_relaxed) + 1;
    WriteMark& mark = header_.marks[number % 2];
    mark.file_bytes = file_.bytes() + block_.size();
    mark.plain_bytes = plain_bytes_ + text_.size();
    std::copy(std::begin(lines_), std::end(lines_), mark.lines);
    mark.lanes = lanes_made_;
    mark.stage = stage_;
    for (const auto& [unit, scan] : touched_) {
        unit->pending = scan;
        unit->pending_write = number;
    }
    header_.write_number.store(number, std::memory_order_release);
    last_error_ = file_.append(block_);
    if (last_error_) {
        // Not landed: the mark before this one holds again.
        header_.write_number.store(number - 1, std::memory_order_release);
        return last_error_;
    }
    plain_bytes_ += text_.size();
    written_lines_ = std::accumulate(std::begin(lines_), std::end(lines_), std::uint64_t{0});
    text_.clear();
    block_.clear();
    for (const auto& [unit, scan] : touched_) unit->consumed = scan;
    auto done = std::exchange(touched_, {});
    if (on_durable)
        for (const auto& [unit, scan] : done) on_durable(unit, scan);
    return 0;
}

int TraceWriter::finish(std::string_view ended, const Losses& losses) {
    if (const int error = flush()) return error;
    if (!opened_) return 0;
    formatter_.footer(text_, lines_, losses, plain_bytes_, file_.bytes(), ended);
    stage_ = TraceStage::complete;
    return flush();
}

bool TraceWriter::resume(const std::string& path) {
    const std::uint64_t number = header_.write_number.load(std::memory_order_acquire);
    const WriteMark* mark = &header_.marks[number % 2];
    if (number == 0) {
        // Nothing of it landed; there may be a piece. The file is ours if the first write was begun, or
        // if it is empty: it was made, or was about to be, by the process that named it.
        struct stat info;
        const bool begun = header_.marks[1].file_bytes != 0;
        const bool there = !path.empty() && lstat(path.c_str(), &info) == 0;
        if (!there || (!begun && info.st_size != 0)) return true;
        return file_.resume(path, 0) == 0;
    }
    if (file_.resume(path, mark->file_bytes) != 0) return false;
    std::copy(std::begin(mark->lines), std::end(mark->lines), lines_);
    plain_bytes_ = mark->plain_bytes;
    lanes_made_ = mark->lanes;  // those tracks hold slices that are not known here
    stage_ = mark->stage;
    written_lines_ = std::accumulate(std::begin(lines_), std::end(lines_), std::uint64_t{0});
    opened_ = true;
    return true;
}

}  // namespace dftrace
