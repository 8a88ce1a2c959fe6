// Blocks of lines into the trace file, and the marks in the spool.
#include "dftrace/writing/trace_writer.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <new>
#include <utility>

namespace dftrace {

namespace {

// Of a part, for its end.
constexpr std::size_t footer_room = 1024;

Losses difference(const Losses& all, const Losses& told) {
    return {all.dropped - told.dropped, all.waits - told.waits, all.unmatched_stops - told.unmatched_stops,
            all.args_sanitised - told.args_sanitised, all.drain_cpu_us - told.drain_cpu_us};
}

}  // namespace

TraceWriter::TraceWriter(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid)
    : settings_(settings),
      header_(header),
      formatter_(settings, shown_pid(settings, header.pid)),
      codec_(make_codec(settings.compression, settings.compression_level)),
      parts_(header, file_stem(settings, header.pid), suffix_of(settings.compression), settings.file_mode),
      parent_pid_(parent_pid),
      index_(settings.max_file_bytes != 0) {}

std::uint64_t TraceWriter::lines_written() const noexcept {
    std::uint64_t lines = 0;
    for (std::size_t kind = 0; kind < lines_.size(); ++kind)
        lines += parts_.lines()[kind] + parts_.earlier_lines()[kind];
    return lines;
}

// What every part begins with.
void TraceWriter::begin(ByteBuffer& out, std::uint32_t part) const {
    formatter_.opening(out);
    formatter_.header(out, parent_pid_, tick_source.name(), part, ProcessIdentity::of(header_));
    for (const auto& [tid, text] : names_for_next_part_) formatter_.track_name(out, tid, text);
}

// The opening and the header come with the first thing there is to say.
void TraceWriter::open() {
    if (opened_) return;
    ByteBuffer head;
    begin(head, parts_.part());
    text_.append(head.view());
    opened_ = true;
}

void TraceWriter::name(std::uint32_t tid, const std::string& name) {
    formatter_.track_name(text_, tid, name);
    names_for_next_part_[tid] = name;
}

void TraceWriter::name_track(Track& track) {
    open();
    if (track.named) return;
    track.text = formatter_.track(track.tid);
    // What has ended on a track apart has lanes of its own.
    if (!track.name.empty() && !track.apart()) name(track.tid, track.name);
    track.named = true;  // last: there may be no memory for the others
}

void TraceWriter::forget_track(const Track& track) {
    names_for_next_part_.erase(track.tid);
    index_.forget_track(track.tid);
    for (const auto* tids : {&track.overlap_tids, &track.logged_tids})
        for (const std::uint32_t tid : *tids) {
            names_for_next_part_.erase(tid);
            lane_texts_.erase(tid);
            index_.forget_track(tid);
        }
}

bool TraceWriter::records(UnitHeader* unit, std::uint32_t& scan, std::uint32_t limit, Track& track,
                          const BlobTables& tables, const ClockMap& clock) {
    if (scan >= limit) return true;
    // A block that failed goes first: its text must not grow any more.
    if (is_block_ && flush() != 0) return false;
    const Record* all = records_of(unit);
    name_track(track);
    while (scan < limit) {
        // Before the line, for which there may be memory when there is none for this. And only where there is
        // one: a unit that is written may soon be another thread's.
        if (touched_.empty() || touched_.back().first != unit) touched_.emplace_back(unit, scan);
        one(all[scan], track, tables, clock);
        touched_.back().second = ++scan;
        if (text_.size() >= settings_.block_bytes && block_done() != 0) return false;
    }
    return true;
}

int TraceWriter::end_records() {
    if (const int error = flush()) return error;
    stage_ = std::max(stage_, TraceStage::unfinished);
    return 0;
}

int TraceWriter::note(std::string_view name_json, std::string_view args, Track& track, std::uint64_t id,
                      std::uint64_t ns) {
    if (is_block_)
        if (const int error = flush()) return error;
    name_track(track);
    Record r{};
    r.id = id;
    r.level = 1;
    r.kind = Kind::instant;
    formatter_.line(text_, r, track.text, {name_json, args, {}}, ns, ns);
    const BlockReach reach = reach_in_line(ns, ns);
    reach_.add(reach.first_ns, reach.last_ns);
    index_.add_other(0, name_json, 'i');
    count(Kind::instant);
    return 0;
}

void TraceWriter::compress_ahead(unsigned threads) noexcept {
    // The beginning of a part depends on what is written when the part before it is full.
    constexpr std::size_t largest_block = 4u << 20;  // several of them are held
    if (settings_.compression != Compression::none && !settings_.max_file_bytes &&
        settings_.block_bytes <= largest_block)
        threads_ahead_ = threads;
}

// The gathered lines are a block. 0, or the errno for which this block or one before it is not written.
int TraceWriter::block_done() {
    if (threads_ahead_ && !ahead_) {
        ahead_ =
            std::make_unique<BlocksAhead>(settings_.compression, settings_.compression_level, threads_ahead_);
        threads_ahead_ = 0;
        if (!ahead_->threads()) ahead_.reset();
    }
    if (!ahead_) return flush();
    if (ahead_->full())
        if (const int error = write_oldest()) return error;
    GatheredBlock block = std::exchange(spare_, {});
    std::swap(block.text, text_);
    block.reach = std::exchange(reach_, {});
    block.lines = lines_;
    block.lanes = lanes_made_;
    block.stage = stage_;
    block.touched = std::exchange(touched_, {});
    ahead_->put(std::move(block));
    return 0;
}

int TraceWriter::write_oldest() {
    if (const int error = check_file()) return error;
    GatheredBlock block = ahead_->take();
    if (const int error =
            append(block.compressed, block.text.size(), block.lines, block.lanes, block.stage, block.touched))
        return error;
    tell_durable(block.touched);
    index_.landed(block.text.line_breaks(), block.reach);
    block.text.clear();
    block.compressed.clear();
    spare_ = std::move(block);
    return 0;
}

int TraceWriter::append(std::string_view block, std::size_t plain_bytes, const LineCounts& lines,
                        std::uint32_t lanes, TraceStage stage, const TouchedUnits& touched) {
    const std::uint64_t number = parts_.next_write();
    for (const auto& [unit, scan] : touched) {
        if (keeps_to_its_file_) consumed_before_part_.try_emplace(unit, unit->consumed);
        // In this order: killed between the two, it must not say that the last write, which landed, was
        // of the records of this one.
        unit->pending_write = number;
        std::atomic_signal_fence(std::memory_order_seq_cst);
        unit->pending = scan;
        if ((last_error_ = parts_.keep(*unit))) return last_error_;
    }
    last_error_ = parts_.append(block, plain_bytes, lines, lanes, stage);
    if (last_error_) return last_error_;
    for (const auto& [unit, scan] : touched) {
        unit->consumed = scan;
        if ((last_error_ = parts_.keep(*unit))) return last_error_;
    }
    return 0;
}

void TraceWriter::tell_durable(const TouchedUnits& touched) const {
    if (on_durable)
        for (const auto& [unit, scan] : touched) on_durable(unit, scan);
}

int TraceWriter::flush() {
    while (ahead_ && !ahead_->empty())
        if (const int error = write_oldest()) return error;
    if (text_.size() == 0) return 0;
    if (const int error = check_file()) return error;
    if (!is_block_) {
        if (settings_.compression != Compression::none)
            codec_->append(block_, text_.view(), facts_of_lines(text_, reach_));
        line_breaks_ = text_.line_breaks();
        is_block_ = true;
    }
    if (spoilt()) {
        FirstBlock first = first_of_next();
        give_up_part();
        put_first(std::move(first));
    }
    if (part_is_full() && (last_error_ = next_part()) != 0) return last_error_;
    if (const int error = append(block(), block_head_ + text_.size(), lines_, lanes_made_, stage_, touched_))
        return error;
    block_head_ = 0;
    facts_landed_ = facts_.size();
    text_.clear();
    const BlockReach reach = std::exchange(reach_, {});
    block_.clear();
    is_block_ = false;
    index_.landed(line_breaks_, reach);
    tell_durable(std::exchange(touched_, {}));
    // A recovery formats lines ahead of what is written, and soon comes to its end.
    return stage_ == TraceStage::complete || keeps_to_its_file_ ? 0 : write_index(false);
}

bool TraceWriter::part_is_full() const noexcept {
    return settings_.max_file_bytes && parts_.begun() && stage_ != TraceStage::complete &&
           parts_.file_bytes() + block().size() + footer_room > settings_.max_file_bytes;
}

// The gathered block becomes the first of another part. 0 or an errno.
int TraceWriter::next_part() {
    if (const int error = write_index(true)) return last_error_ = error;
    const Losses losses = header_.losses();
    ByteBuffer end;
    Ending ending{"rotated"};
    ending.earlier_events = events_of(parts_.earlier_lines());
    formatter_.footer(end, parts_.lines(), difference(losses, parts_.told()), parts_.plain_bytes(),
                      parts_.file_bytes(), ending, parts_.part());
    std::string footer;
    codec_->append(footer, end.view(), facts_of_lines(end, {}));
    FirstBlock first = first_of_next();
    const LineCounts written = parts_.lines();
    if (const int error = parts_.close(footer, end.size(), losses)) return error;
    // From here on nothing can fail: the block without this head would be no beginning of a part.
    put_first(std::move(first));
    forget_lines(written);
    consumed_before_part_.clear();
    if (settings_.max_files) parts_.keep_last(settings_.max_files - 1);
    return 0;
}

int TraceWriter::write_index(bool last) {
    std::string block;
    std::size_t plain_bytes = 0;
    const std::uint64_t file_bytes = parts_.file_bytes();
    try {
        std::size_t room = index_.room(file_bytes, last);
        if (settings_.max_file_bytes)
            room = static_cast<std::size_t>(
                std::min<std::uint64_t>(room, settings_.max_file_bytes > file_bytes + footer_room
                                                  ? settings_.max_file_bytes - file_bytes - footer_room
                                                  : 0));
        const std::string members = index_.members(parts_.plain_bytes(), room);
        if (members.empty()) return 0;
        ByteBuffer line;
        formatter_.index(line, members + (parts_.part() ? ",\"part\":" + std::to_string(parts_.part()) : ""));
        plain_bytes = line.size();
        codec_->append(block, line.view(), {.lines = 1, .holds = BlockHolds::index, .reach = {}});
        if (block.size() > room) {
            index_.tried(block.size(), false, file_bytes);
            return 0;
        }
    } catch (const std::bad_alloc&) {
        return 0;  // when there is memory again
    }
    const WriteMark& mark = header_.last_mark();
    const int error = parts_.append(block, plain_bytes, parts_.lines(), mark.lanes, mark.stage);
    if (!error) index_.tried(block.size(), true, parts_.file_bytes());
    // A disk without room has none for the next block either, which is kept and told of then.
    return keeps_to_its_file_ ? last_error_ = error : 0;
}

int TraceWriter::finish(const Ending& ending) {
    if (const int error = flush()) return error;
    if (spoilt()) {
        give_up_part();
        opened_ = false;
    }
    if (!opened_ && parts_.part() == 0) return 0;
    // Open spans of a dump stand at the end until the footer takes their place.
    if (parts_.begun() && open_lines_.empty())
        if (const int error = write_index(true)) return error;
    open();
    // Of these no dump has told otherwise. In one write with the footer: who would finish this trace does
    // not know that they are told.
    for (const auto& [id, told] : open_lines_.take_lost()) {
        text_.append(told);
        reach_ = BlockReach::everywhere();  // nobody has looked at its times
        ++lines_[is_open_span(told) ? 0 : static_cast<std::size_t>(Kind::span)];
    }
    Ending told = ending;
    told.earlier_events = events_of(parts_.earlier_lines());
    formatter_.footer(text_, lines_, difference(header_.losses(), parts_.told()),
                      parts_.plain_bytes() + text_.size(), parts_.file_bytes(), told, parts_.part());
    stage_ = TraceStage::complete;
    return flush();
}

int TraceWriter::resume() {
    std::string tail;
    if (const int error = parts_.resume(settings_.flight_recorder ? &tail : nullptr)) return error;
    open_lines_.take_in(codec_->text(tail, max_tail_bytes));
    const WriteMark& mark = header_.last_mark();
    lines_ = parts_.lines();
    if (parts_.next_write() == 1) return 0;
    index_.give_up();  // nothing is known of what is in the file
    // Nothing is written without the opening before it: a mark that says so is damaged.
    opened_ = !mark.closed && mark.file_bytes > 0;
    lanes_made_ = mark.lanes;  // those tracks hold slices that are not known here
    stage_ = mark.stage;
    return 0;
}

}  // namespace dftrace
