// The writer's lines of spans that have not ended: at the end of a run, and in the dumps before it.
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "dftrace/writing/trace_writer.hpp"

namespace dftrace {

namespace {

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

void TraceWriter::unfinished(const OpenSpan& span, Track& track, const BlobTables& tables,
                             const ClockMap& clock) {
    name_track(track);
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
    name_track(track);
    one(r, track, tables, clock);
}

int TraceWriter::begin_dump() {
    open_lines_.begin();
    return is_block_ ? flush() : 0;  // tracks are about to be named
}

void TraceWriter::open_now(const OpenSpan& span, Track& track, const BlobTables& tables,
                           const ClockMap& clock) {
    name_track(track);
    ByteBuffer out;
    line(out, record_of(span), track, tables, clock);
    open_lines_.see(span.id, out.view());
}

// On tracks of their own: they seem to go on for ever, and would hold all that their thread did later.
int TraceWriter::lost_spans() {
    if (is_block_)
        if (const int error = flush()) return error;
    std::map<std::uint32_t, std::uint32_t> lanes;
    for (const auto& [id, open] : open_lines_.take_lost()) {
        const std::uint32_t tid = track_of(open);
        const auto [lane, fresh] = lanes.try_emplace(tid, first_overlap_lane + lanes_made_);
        if (fresh) {
            ++lanes_made_;
            name(lane->second, "open at an earlier dump · " + std::to_string(tid));
        }
        text_.append(on_track(open, lane->second));
        reach_ = BlockReach::everywhere();  // nobody has looked at its times
        index_.give_up();                   // nor at its name
        ++lines_[0];
    }
    return 0;
}

bool TraceWriter::ended_since(const Record& r, Track& track, const BlobTables& tables,
                              const ClockMap& clock) {
    if (r.kind != Kind::span || !open_lines_.told(r.id)) return false;
    name_track(track);
    ByteBuffer out;
    line(out, r, track, tables, clock);
    open_lines_.replace(r.id, out.view());
    return true;
}

int TraceWriter::end_dump() {
    std::string block;
    ByteBuffer text;
    text.append(open_lines_.tell_seen());
    if (text.size()) codec_->append(block, text.view(), facts_of_lines(text, BlockReach::everywhere()));
    return last_error_ = parts_.put_tail(block);
}

}  // namespace dftrace
