// The lines of a block, one after the other: those that are plainly right, and those for the rules.
#include "dftrace/reading/traces/checking.hpp"

#include <algorithm>
#include <optional>

#include <string_view>

namespace dftrace {

namespace {

std::uint64_t track_number(std::uint32_t pid, std::uint32_t tid) noexcept {
    return std::uint64_t{pid} << 32 | tid;
}

// From when to when the lines of a block reach; nothing where a time cannot be read.
std::optional<BlockReach> reach_of(const Rows& rows) {
    BlockReach reach;
    for (std::size_t row = 0; row < rows.size; ++row) {
        const std::int64_t start = rows.start[row];
        if (rows.ph[row] == 'M') continue;
        if (start == no_time || (rows.ph[row] == 'X' && rows.duration[row] < 0)) return {};
        if (rows.ph[row] == 'B')
            reach.add_from(start);
        else
            reach.add(start, start + std::max<std::int64_t>(rows.duration[row], 0));
    }
    return reach;
}

bool is_index(std::string_view text) noexcept {
    return text.starts_with(R"({"name":"index","cat":"dftrace",)") && text.find('\n') == text.size() - 1;
}

}  // namespace

void Checking::hold_block(const BlockFacts& facts, std::uint64_t packed_bytes) {
    if (again_) return;
    using What = BlockFault::What;
    const auto hold = [&](What what, auto said, auto found) {
        if (said == found) return;
        ++block_fault_count_;
        if (block_faults_.size() < most_faults)
            block_faults_.push_back(
                {walk_.lines() + 1, what, static_cast<std::int64_t>(said), static_cast<std::int64_t>(found)});
    };
    hold(What::packed_bytes, std::uint64_t{facts.packed_bytes}, packed_bytes);
    hold(What::plain_bytes, std::size_t{facts.plain_bytes}, walk_.text().size());
    hold(What::lines, std::size_t{facts.lines}, walk_.rows().lines);
    hold(What::index, facts.holds == BlockHolds::index, is_index(walk_.text()));
    // Who completes the trace of the dead does not look at all times.
    if (facts.reach == BlockReach::everywhere()) return;
    if (const std::optional<BlockReach> reach = reach_of(walk_.rows())) {
        hold(What::first, facts.reach.first_ns, reach->first_ns);
        hold(What::last, facts.reach.last_ns, reach->told_last_ns());
    }
}

bool Checking::passes() {
    return walk_.lines() > certified_from_ && walk_.lines() <= certified_to_ && walk_.style() == style_;
}

void Checking::hold_id() {
    const std::size_t row = walk_.row();
    if (row == LineWalk::no_row) return;
    // The two ends of an arrow share theirs, and metadata is told again, as it was, by each part of a trace.
    const std::uint8_t ph = walk_.rows().ph[row];
    const std::uint64_t id = walk_.rows().id[row];
    if (id == 0 || ph == 's' || ph == 'f' || ph == 'M') return;
    // Each process numbers its own: a file that was put together has those of several, one after the other.
    const std::int64_t pid = walk_.labels().track_id(walk_.rows().track[row]).pid;
    if (ids_pid_ && *ids_pid_ != pid) used_ids_.forget();
    ids_pid_ = pid;
    if (!used_ids_.again(id)) return;
    ++repeated_id_count_;
    if (repeated_ids_.size() < most_faults) repeated_ids_.push_back({walk_.lines(), id});
}

void Checking::add_row() {
    const Rows& rows = walk_.rows();
    const std::size_t row = walk_.row();
    switch (rows.ph[row]) {
        case 'i': ++counts_.instants; return;
        case 'C': ++counts_.counters; return;
        case 's':
        case 'f': ++counts_.flows; return;
        default: ++counts_.spans;
    }
    if (generation_ != walk_.generation()) {
        generation_ = walk_.generation();
        tracks_.clear();
    }
    const std::uint32_t number = rows.track[row];
    if (number >= tracks_.size()) tracks_.resize(std::size_t{number} + number / 2 + 16);
    KnownTrack& known = tracks_[number];
    if (!known.number) {
        const TrackId id = walk_.labels().track_id(number);
        known.number = track_number(static_cast<std::uint32_t>(id.pid), static_cast<std::uint32_t>(id.tid));
        known.track = nesting_.track(known.number);
    }
    const std::int64_t start = rows.start[row], end = start + rows.duration[row];
    if (!again_)
        nesting_.add(known.track, start, end, rows.parent[row]);
    else if (nesting_.is_aside(known.track))
        nesting_.collect({known.number, start, end, walk_.lines()});
}

bool Checking::step() {
    while (walk_.step()) {
        if (!again_) {
            figures_.add(walk_);
            hold_id();
        }
        if (passes()) {
            if (again_) collect_until(walk_.lines());
            add_row();
        } else if (!again_) {
            return true;
        }
    }
    return false;
}

void Checking::certify(TimeStyle style) noexcept {
    if (style == style_ || certified_to_ != no_line) return;
    if (style_ == TimeStyle::none) {
        style_ = style;
        certified_from_ = walk_.lines();
    } else {
        certified_to_ = walk_.lines();
    }
}

void Checking::add_span(std::uint32_t pid, std::uint32_t tid, std::int64_t start, std::int64_t end) {
    const std::uint64_t number = track_number(pid, tid);
    nesting_.add(nesting_.track(number), start, end, no_parent);
    if (odd_spans_.size() < most_spans_)
        odd_spans_.push_back({number, start, end, walk_.lines()});
    else
        ++odd_left_out_;
}

// Spans that the rules have seen take their places among the others.
void Checking::collect_until(std::uint64_t line) {
    for (; odd_collected_ < odd_spans_.size() && odd_spans_[odd_collected_].line < line; ++odd_collected_) {
        const NestedTracks::Span& span = odd_spans_[odd_collected_];
        if (nesting_.is_aside(nesting_.track(span.track))) nesting_.collect(span);
    }
}

bool Checking::end() {
    if (again_) collect_until(no_line);
    if (again_ || !nesting_.any_aside()) return false;
    again_ = true;
    walk_.begin_again();
    counts_ = {};
    return true;
}

}  // namespace dftrace
