// What covered time and durations are told by in a file, and taken from: once for many lines, and small.
#include <algorithm>
#include <charconv>
#include <iterator>

#include "dftrace/index/covered_time.hpp"
#include "dftrace/index/durations.hpp"

namespace dftrace {

bool CoveredTime::Standing::holds() const noexcept {
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max() / 2;
    const auto may_be = [](std::int64_t time) { return time >= -most && time <= most; };
    if (groups.empty() || groups.size() > most_groups || !may_be(end) || groups.back().end != end ||
        groups.back().last != start)
        return false;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        const Group& group = groups[i];
        if (!may_be(group.first) || group.last < group.first || group.end <= group.last || group.end > end ||
            group.covered < 0 || group.covered > most || (i && groups[i - 1].last >= group.first))
            return false;
    }
    return true;
}

std::string CoveredTime::tell(std::uint32_t number) const {
    if (number >= tracks_.size() || tracks_[number].before.empty()) return {};
    const Track& track = tracks_[number];
    std::string json = ",\"end_ns\":" + std::to_string(track.last.end);
    json += ",\"start_ns\":" + std::to_string(track.last.last) + ",\"spans\":[";
    const auto put = [&json](const Group& group) {
        for (const std::int64_t time : {group.first, group.last, group.end, group.covered})
            json += std::to_string(time) + ',';
        // -1 for none.
        json += std::to_string(static_cast<std::int64_t>(group.parent)) + ',';
    };
    // The first is nothing.
    for (std::size_t i = 1; i < track.before.size(); ++i) put(track.before[i]);
    put(track.last);
    json.back() = ']';
    return json;
}

std::optional<CoveredTime::Standing> CoveredTime::standing(std::uint32_t number) const {
    if (number >= tracks_.size() || tracks_[number].before.empty()) return {};
    const Track& track = tracks_[number];
    Standing standing{track.last.end, track.last.last, {track.before.begin() + 1, track.before.end()}};
    standing.groups.push_back(track.last);
    return standing;
}

void CoveredTime::resume(std::uint32_t number, const Standing& standing) {
    Track& track = this->track(number);
    if (track.aside) return;
    forget(number);
    for (const Group& group : standing.groups)
        if (!remember_apart(track, group)) return;
}

template <typename Put>
void Durations::tell_each(Put put) const {
    for (const std::int64_t ns : exact_) put(static_cast<std::uint64_t>(ns));
    unsigned next = 0;
    for (unsigned page = 0; pages_ && page < pages; ++page)
        for (unsigned i = 0; (*pages_)[page] && i < 1u << bits; ++i)
            if (const std::uint64_t times = (*(*pages_)[page])[i]) {
                const unsigned bucket = (page << bits) + i;
                put(bucket - next);
                put(times);
                next = bucket + 1;
            }
}

void Durations::tell(std::string& json) const {
    json += pages_ ? ",\"buckets\":[" : ",\"exact\":[";
    // Many small numbers: hundreds of bytes at a time.
    constexpr std::size_t longest = 21;
    char some[512];
    char* at = some;
    tell_each([&](std::uint64_t number) {
        if (at > std::end(some) - longest) {
            json.append(some, at);
            at = some;
        }
        at = std::to_chars(at, std::end(some), number).ptr;
        *at++ = ',';
    });
    json.append(some, at);
    if (json.back() == ',') json.pop_back();
    json += ']';
}

bool Durations::tell(std::vector<std::int64_t>& numbers) const {
    tell_each([&](std::uint64_t number) { numbers.push_back(static_cast<std::int64_t>(number)); });
    return !pages_;
}

bool Durations::take_in(bool exact, const std::vector<std::int64_t>& told, Budget& budget) {
    if (exact) {
        if (told.size() > most_exact) return false;
        for (const std::int64_t ns : told) {
            if (ns < 0) return false;
            add(ns, budget);
        }
        return true;
    }
    if (told.size() % 2) return false;
    give_up_exactness(budget);
    constexpr std::int64_t end = std::int64_t{pages} << bits, most = std::int64_t{1} << 53;
    std::int64_t bucket = -1;
    for (std::size_t i = 0; i < told.size(); i += 2) {
        if (told[i] < 0 || told[i] >= end - bucket - 1 || told[i + 1] < 1 || told[i + 1] > most) return false;
        bucket += told[i] + 1;
        count(static_cast<unsigned>(bucket), static_cast<std::uint64_t>(told[i + 1]), budget);
        size_ += static_cast<std::uint64_t>(told[i + 1]);
        if (size_ > static_cast<std::uint64_t>(most)) return false;
    }
    return true;
}

bool Durations::reach(std::int64_t least, std::int64_t greatest) const noexcept {
    if (!pages_) {
        const auto [first, last] = std::minmax_element(exact_.begin(), exact_.end());
        return !exact_.empty() && *first == least && *last == greatest;
    }
    const auto has = [&](unsigned at) {
        const std::unique_ptr<Page>& page = (*pages_)[at >> bits];
        return page && (*page)[at & ((1u << bits) - 1)] > 0;
    };
    constexpr unsigned end = static_cast<unsigned>(pages) << bits;
    unsigned first = 0, behind = end;
    while (first < end && !has(first)) ++first;
    while (behind > first && !has(behind - 1)) --behind;
    return first < behind && bucket(static_cast<std::uint64_t>(least)) == first &&
           bucket(static_cast<std::uint64_t>(greatest)) == behind - 1;
}

}  // namespace dftrace
