// Figures of a part, and the index line.
#include "dftrace/writing/part_index.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <utility>

#include "dftrace/writing/line_formatter.hpp"

namespace dftrace {

namespace {

// Of the bytes since the last index line, or of all of the file at its end: half a percent.
constexpr std::uint64_t bytes_for_one = 200;
// Numbers of nodes are given out one after the other; a damaged spool may have any.
constexpr std::uint32_t most_nodes = 1u << 20;
constexpr std::size_t most_tracks = 4096;
constexpr std::size_t most_groups = 4096;
// Readers take in a line at once.
constexpr std::size_t most_text = std::size_t{4} << 20;

void put(std::string& text, std::string_view key, std::uint64_t value) {
    text.append(key).append(std::to_string(value));
}

void put_signed(std::string& text, std::string_view key, std::int64_t value) {
    text.append(key).append(std::to_string(value));
}

}  // namespace

void PartIndex::give_up() noexcept {
    given_up_ = true;
    spans_.reset();
    gathered_ = room_ = 0;
    others_ = {};
    over_ = {};
    std::vector<Figures>().swap(figures_);
    labels_.clear();
    label_of_node_ = {};
    tracks_.clear();
    covered_ = CoveredTime();
}

std::uint32_t PartIndex::find_label(std::uint32_t node, std::string_view name_json) noexcept {
    if (given_up_) return no_label;
    try {
        return new_label(node, name_json);
    } catch (const std::exception&) {
        give_up();
        return no_label;
    }
}

std::uint32_t PartIndex::new_label(std::uint32_t node, std::string_view name_json) {
    if (node >= most_nodes) throw TooMuch();
    const std::string_view name = name_json.empty() ? unknown_name : name_json;
    const auto [found, fresh] =
        labels_.try_emplace(std::string(name), static_cast<std::uint32_t>(figures_.size()));
    if (fresh) {
        budget_.take(sizeof(Figures) + 160 + 2 * name.size());
        figures_.emplace_back().name_json = name;
    }
    // 0 is for all that is no node, and a name may become known.
    if (node == 0 || name_json.empty()) return found->second;
    if (node >= label_of_node_.size()) {
        const std::size_t size = std::size_t{node} + node / 2 + 16;
        budget_.take((size - label_of_node_.size()) * sizeof(std::uint32_t));
        label_of_node_.resize(size, no_label);
    }
    return label_of_node_[node] = found->second;
}

std::uint32_t PartIndex::track_of(std::uint32_t tid) {
    auto found = tracks_.find(tid);
    if (found == tracks_.end()) {
        if (tracks_.size() >= most_tracks) throw TooMuch();
        std::uint32_t number = static_cast<std::uint32_t>(tracks_.size());
        if (!free_tracks_.empty()) {
            number = free_tracks_.back();
            free_tracks_.pop_back();
        }
        found = tracks_.emplace(tid, number).first;
    }
    return found->second;
}

void PartIndex::forget_track(std::uint32_t tid) noexcept {
    if (given_up_) return;
    try {
        over_.push_back({gathered_, tid});
    } catch (const std::bad_alloc&) {
        give_up();
    }
}

void PartIndex::forget(std::uint32_t tid) {
    const auto found = tracks_.find(tid);
    if (found == tracks_.end()) return;
    covered_.forget(found->second);
    free_tracks_.push_back(found->second);
    tracks_.erase(found);
}

void PartIndex::make_room() {
    constexpr std::size_t at_once = 1024;
    if (gathered_ < room_) return;
    if (room_ && !waits_for_blocks_) return take_in();
    const std::size_t room = room_ ? 2 * room_ : at_once;
    std::unique_ptr<Span[]> more(new Span[room]);
    std::copy_n(spans_.get(), gathered_, more.get());
    spans_ = std::move(more);
    room_ = room;
}

void PartIndex::add_unusual(std::uint32_t node, std::string_view name_json, Span span) noexcept {
    if (span.label == no_label) span.label = find_label(node, name_json);
    if (span.label == no_label) return;
    try {
        if (static_cast<std::uint64_t>(span.end_ns) > latest_ns) throw TooMuch();
        make_room();
    } catch (const std::exception&) {
        return give_up();
    }
    spans_[gathered_++] = span;
}

void PartIndex::add_other(std::uint32_t node, std::string_view name_json, char ph) noexcept {
    const bool known = node < label_of_node_.size() && label_of_node_[node] != no_label;
    const std::uint32_t label = known ? label_of_node_[node] : find_label(node, name_json);
    if (label == no_label) return;
    try {
        others_.push_back({label, ph});
    } catch (const std::bad_alloc&) {
        give_up();
    }
}

void PartIndex::add(const Span* span, const Span* const end) {
    Figures* const figures = figures_.data();
    while (span != end) {
        const std::uint32_t tid = span->tid;
        CoveredTime::Track& track = covered_.track(track_of(tid));
        for (; span != end && span->tid == tid; ++span) {
            Figures& of = figures[span->label];
            const std::int64_t duration = span->end_ns - span->start_ns;
            const std::int64_t covered = covered_.of(track, span->start_ns, span->end_ns, span->parent);
            // No more than all of the durations together, but for what overlaps: an index is not for those.
            if (covered) of.covered_ns += static_cast<std::uint64_t>(covered);
            if (covered == CoveredTime::not_known ||
                __builtin_add_overflow(of.total_ns, duration, &of.total_ns))
                throw TooMuch();
            of.least_ns = std::min(of.least_ns, duration);
            of.greatest_ns = std::max(of.greatest_ns, duration);
            of.durations.add(duration, budget_);
        }
    }
}

void PartIndex::take_in() {
    const Span *const spans = spans_.get(), *at = spans;
    for (const Over& over : over_) {
        add(std::exchange(at, spans + over.spans), spans + over.spans);
        forget(over.tid);
    }
    add(at, spans + gathered_);
    for (const Other& other : others_) ++figures_[other.label].others[phases.find(other.ph)];
    fresh_ = fresh_ || gathered_ > 0 || !others_.empty();
    gathered_ = 0;
    others_.clear();
    over_.clear();
}

void PartIndex::landed(std::uint64_t line_breaks, const BlockReach& reach) noexcept {
    line_breaks_ += line_breaks;
    reach_.add(reach);
    if (given_up_) return;
    try {
        take_in();
    } catch (const std::exception&) {
        give_up();
    }
}

void PartIndex::begin_part() noexcept {
    // Somebody took the file of the part before, and some of these spans were added up already.
    if (!waits_for_blocks_) return give_up();
    line_breaks_ = bytes_at_last_ = 0;
    reach_ = {};
    fresh_ = false;
    for (Figures& of : figures_) {
        of.durations.clear(budget_);
        of.total_ns = of.greatest_ns = 0;
        of.covered_ns = 0;
        of.least_ns = std::numeric_limits<std::int64_t>::max();
        of.others = {};
    }
}

std::size_t PartIndex::room(std::uint64_t file_bytes, bool last) const noexcept {
    if (given_up_ || !fresh_) return 0;
    const std::uint64_t room = (last ? file_bytes : file_bytes - bytes_at_last_) / bytes_for_one;
    return room < expected_bytes_ ? 0 : static_cast<std::size_t>(room);
}

std::string PartIndex::members(std::uint64_t plain_bytes, std::size_t room) noexcept {
    if (room == 0) return {};
    try {
        std::string made = text(plain_bytes);
        if (made.size() <= most_text) return made;
    } catch (const std::exception&) {
        // No room for it now; the figures stay.
    }
    expected_bytes_ = std::max(2 * expected_bytes_, room);
    return {};
}

void PartIndex::tried(std::size_t packed_bytes, bool written, std::uint64_t file_bytes) noexcept {
    expected_bytes_ = packed_bytes;
    if (!written) return;
    bytes_at_last_ = file_bytes;
    ++line_breaks_;
    fresh_ = false;
}

std::string PartIndex::text(std::uint64_t plain_bytes) const {
    if (covered_.groups() > most_groups) throw TooMuch();
    std::string out;
    put(out, ",\"bytes\":", plain_bytes);
    put(out, ",\"lines\":", line_breaks_);
    // Metadata alone has no times, and users may give any.
    if (reach_.first_ns >= 0 && reach_.first_ns <= reach_.last_ns) {
        put_signed(out, ",\"first_ns\":", reach_.first_ns);
        put_signed(out, ",\"last_ns\":", reach_.last_ns);
    }
    out += ",\"spans\":[";
    const char* between = "";
    for (const Figures& of : figures_) {
        if (of.durations.size() == 0) continue;
        out.append(std::exchange(between, ",")).append("{").append(of.name_json);
        put(out, ",\"count\":", of.durations.size());
        put_signed(out, ",\"sum_ns\":", of.total_ns);
        put_signed(out, ",\"self_ns\":", of.total_ns - static_cast<std::int64_t>(of.covered_ns));
        put_signed(out, ",\"min_ns\":", of.least_ns);
        put_signed(out, ",\"max_ns\":", of.greatest_ns);
        of.durations.tell(out);
        out += '}';
    }
    out += "],\"others\":[";
    between = "";
    for (const Figures& of : figures_)
        for (std::size_t at = 0; at < phases.size(); ++at) {
            if (of.others[at] == 0) continue;
            out.append(std::exchange(between, ",")).append("{\"ph\":\"");
            out.append(1, phases[at]).append("\",").append(of.name_json);
            put(out, ",\"count\":", of.others[at]);
            out += '}';
        }
    out += "],\"tracks\":[";
    between = "";
    std::vector<std::pair<std::uint32_t, std::uint32_t>> tracks(tracks_.begin(), tracks_.end());
    std::sort(tracks.begin(), tracks.end());
    for (const auto& [tid, number] : tracks) {
        const std::string open = covered_.tell(number);
        if (open.empty()) continue;
        put(out.append(std::exchange(between, ",")), "{\"tid\":", tid);
        out.append(open).append("}");
    }
    return out += ']';
}

}  // namespace dftrace
