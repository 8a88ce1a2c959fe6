// Figures of a part, and the index line.
#include "dftrace/writing/part_index.hpp"

#include <algorithm>
#include <exception>
#include <limits>
#include <new>
#include <utility>

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
constexpr std::uint64_t most_ns = std::numeric_limits<std::int64_t>::max();

void put(std::string& text, std::string_view key, std::uint64_t value) {
    text.append(key).append(std::to_string(value));
}

void put_signed(std::string& text, std::string_view key, std::int64_t value) {
    text.append(key).append(std::to_string(value));
}

}  // namespace

void PartIndex::give_up() noexcept {
    given_up_ = true;
    gathered_ = {};
    std::vector<Figures>().swap(figures_);
    labels_.clear();
    label_of_node_ = {};
    tracks_.clear();
    covered_ = CoveredTime();
}

std::uint32_t PartIndex::label_of(std::uint32_t node, std::string_view name_json) {
    if (node >= most_nodes) throw TooMuch();
    if (node >= label_of_node_.size()) {
        const std::size_t size = std::size_t{node} + node / 2 + 16;
        budget_.take((size - label_of_node_.size()) * sizeof(std::uint32_t));
        label_of_node_.resize(size);
    }
    std::uint32_t& known = label_of_node_[node];
    if (node && known) return known - 1;
    const auto [found, fresh] =
        labels_.try_emplace(std::string(name_json), static_cast<std::uint32_t>(figures_.size()));
    if (fresh) {
        budget_.take(sizeof(Figures) + 160 + 2 * name_json.size());
        figures_.emplace_back().name_json = name_json;
    }
    known = found->second + 1;
    return found->second;
}

std::uint32_t PartIndex::track_of(std::uint32_t tid) {
    if (any_track_ && tid == last_tid_) return last_track_;
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
    any_track_ = true;
    last_tid_ = tid;
    return last_track_ = found->second;
}

void PartIndex::forget_track(std::uint32_t tid) noexcept {
    const auto found = tracks_.find(tid);
    if (given_up_ || found == tracks_.end()) return;
    covered_.forget(found->second);
    any_track_ = false;
    try {
        free_tracks_.push_back(found->second);
        tracks_.erase(found);
    } catch (const std::bad_alloc&) {
        // It stays what it was: a track with nothing on it.
    }
}

void PartIndex::add_span(std::uint32_t node, std::string_view name_json, std::uint32_t tid,
                         const BlockReach& reach, std::uint64_t parent) noexcept {
    if (given_up_) return;
    // Beyond these readers know no times.
    constexpr std::int64_t most = 4'000'000'000'000'000'000;
    if (reach.first_ns < 0 || reach.last_ns < reach.first_ns || reach.last_ns > most) return give_up();
    try {
        const std::int64_t duration = reach.last_ns - reach.first_ns;
        const std::int64_t covered = covered_.of(track_of(tid), reach.first_ns, duration, parent);
        if (covered == CoveredTime::not_known) return give_up();
        gathered_.push_back({duration, covered, label_of(node, name_json), 'X'});
    } catch (const std::exception&) {
        give_up();
    }
}

void PartIndex::add_other(std::uint32_t node, std::string_view name_json, char ph) noexcept {
    if (given_up_) return;
    try {
        gathered_.push_back({-1, 0, label_of(node, name_json), ph});
    } catch (const std::exception&) {
        give_up();
    }
}

void PartIndex::add(const IndexedLine& line) {
    Figures& of = figures_[line.label];
    if (line.ph != 'X') {
        ++of.others[phases.find(line.ph)];
        return;
    }
    const auto duration = static_cast<std::uint64_t>(line.duration_ns);
    if (of.total_ns > most_ns - duration) throw TooMuch();
    of.least_ns = of.count ? std::min(of.least_ns, line.duration_ns) : line.duration_ns;
    of.greatest_ns = std::max(of.greatest_ns, line.duration_ns);
    ++of.count;
    of.total_ns += duration;
    // No more than all of the durations together, but for what overlaps: an index is not for those.
    of.covered_ns += static_cast<std::uint64_t>(line.covered_ns);
    of.durations.add(line.duration_ns, budget_);
}

void PartIndex::landed(const IndexedLines& lines, std::uint64_t line_breaks) noexcept {
    line_breaks_ += line_breaks;
    if (given_up_) return;
    try {
        for (const IndexedLine& line : lines) add(line);
        fresh_ = fresh_ || !lines.empty();
    } catch (const std::exception&) {
        give_up();
    }
}

void PartIndex::landed(std::uint64_t line_breaks) noexcept {
    landed(gathered_, line_breaks);
    gathered_.clear();
}

void PartIndex::begin_part() noexcept {
    line_breaks_ = bytes_at_last_ = 0;
    fresh_ = false;
    for (Figures& of : figures_) {
        of.durations.clear(budget_);
        of.count = of.total_ns = of.covered_ns = 0;
        of.greatest_ns = 0;
        of.others = {};
    }
}

std::size_t PartIndex::room(std::uint64_t file_bytes, bool last) const noexcept {
    if (given_up_ || !fresh_) return 0;
    const std::uint64_t room = (last ? file_bytes : file_bytes - bytes_at_last_) / bytes_for_one;
    return room < expected_bytes_ ? 0 : static_cast<std::size_t>(room);
}

std::string PartIndex::members(std::uint64_t plain_bytes, std::size_t room) noexcept {
    // The tracks stand behind the lines that are gathered, and those are for the next part.
    if (room == 0 || !gathered_.empty()) return {};
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
    out += ",\"spans\":[";
    const char* between = "";
    for (const Figures& of : figures_) {
        if (of.count == 0) continue;
        out.append(std::exchange(between, ",")).append("{").append(of.name_json);
        put(out, ",\"count\":", of.count);
        put(out, ",\"sum_ns\":", of.total_ns);
        put_signed(out, ",\"self_ns\":", static_cast<std::int64_t>(of.total_ns - of.covered_ns));
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
