// Which times of a profile cannot be.
#include "dftrace/reading/documents/odd_times.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/reading/traces/rows.hpp"
#include "dftrace/text/json_walk.hpp"

namespace dftrace {

namespace {

constexpr std::int64_t us = 1'000, second = 1'000'000'000, day = 24 * 3'600 * second;
// A profiler holds all events in memory: there are no hours of silence between them. Others may have slept
// for days.
constexpr std::int64_t silence = 3'600 * second, long_silence = 365 * day;
// Those that are left out are few, or all at the same time.
constexpr std::uint64_t least_times = 4;
// Times that lie so close are looked at together; who has more of them keeps no order.
constexpr std::int64_t bucket_ns = 60 * second;
constexpr std::size_t most_buckets = 100'000;
// What one stream of a GPU does, one after the other. A kernel that was launched as a dependent one begins
// while the one before it ends, and old files have whole microseconds: in public traces that is up to 13 us.
// None goes on behind the end of the next.
constexpr std::int64_t overlap = 20 * us;
// The last of a stream may outlast what else was recorded, but not by more than all of that.
constexpr std::int64_t tail = 100'000 * us;

// Categories, in quotes and small letters.
constexpr std::string_view on_stream[] = {"\"kernel\"", "\"gpu_memcpy\"", "\"gpu_memset\"", "\"memcpy\"",
                                          "\"memset\""};
constexpr std::string_view around = "\"gpu_user_annotation\"";
constexpr std::string_view of_host[] = {"\"cpu_op\"", "\"user_annotation\"", "\"operator\""};

template <std::size_t Count>
bool is_in(const std::string_view (&words)[Count], std::string_view word) noexcept {
    return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

std::string in_small_letters(std::string_view text) {
    std::string small(text.size() <= around.size() ? text : std::string_view());
    for (char& c : small)
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
    return small;
}

bool is_number(std::string_view value) noexcept {
    return !value.empty() && (value.front() == '-' || (value.front() >= '0' && value.front() <= '9'));
}

// Nothing for what is no number; what is beyond all times is the last of them, or the first.
std::optional<std::int64_t> moment_of(std::string_view value) noexcept {
    if (!is_number(value)) return std::nullopt;
    constexpr std::int64_t most = most_micros * 1000;
    return ns_of_micros(value).value_or(value.front() == '-' ? -most : most);
}

// 0 for what is no length, as readers of lines have it.
std::int64_t length_of(std::string_view value) noexcept {
    return is_number(value) ? std::max<std::int64_t>(ns_of_micros(value).value_or(0), 0) : 0;
}

std::int64_t sum(std::int64_t a, std::int64_t b) noexcept {
    std::int64_t result = 0;
    return __builtin_add_overflow(a, b, &result) ? std::numeric_limits<std::int64_t>::max() : result;
}

std::int64_t apart(std::int64_t later, std::int64_t earlier) noexcept {
    std::int64_t result = 0;
    return __builtin_sub_overflow(later, earlier, &result) ? std::numeric_limits<std::int64_t>::max()
                                                           : result;
}

std::int64_t bucket_of(std::int64_t start) noexcept {
    // What is not behind 0 is by itself.
    return start > 0 ? start / bucket_ns : (start - 1) / bucket_ns - ((start - 1) % bucket_ns < 0);
}

// The stream of an activity, and the number of its launch, -1 where that is not told.
std::pair<std::string, std::int64_t> stream_of(const TimedEvent& event) {
    std::string_view stream, device, context, correlation;
    if (!event.args.empty() && event.args.front() == '{')
        JsonWalk(event.args).members([&](std::string_view key, std::string_view value) {
            if (key == "\"stream\"") stream = value;
            if (key == "\"device\"") device = value;
            if (key == "\"context\"") context = value;
            if (key == "\"correlation\"") correlation = value;
        });
    const auto bare = [](std::string_view value) {
        return value.size() > 1 && value.front() == '"' ? value.substr(1, value.size() - 2) : value;
    };
    const char first = stream.empty() ? '\0' : stream.front();
    const bool told = first == '"' || ((first == '-' || (first >= '0' && first <= '9')) &&
                                       stream.find_first_of(".eE") == stream.npos);
    std::string place(event.pid);
    // Several streams may share a thread, and one of them several.
    for (const std::string_view part :
         {told ? device : event.tid, told ? context : std::string_view(), told ? stream : std::string_view()})
        place.append("\n").append(bare(part));
    std::int64_t launch = -1;
    const char* const end = correlation.data() + correlation.size();
    const auto [stopped, error] = std::from_chars(correlation.data(), end, launch);
    const bool well = error == std::errc() && stopped == end && launch > 0 && launch < std::int64_t(1) << 62;
    return {std::move(place), well ? launch : -1};
}

}  // namespace

bool Mending::keeps(std::string_view ph, std::string_view ts) const {
    const std::optional<std::int64_t> start = moment_of(ts);
    return !start || ph == "\"M\"" || (first <= *start && *start <= last);
}

void OddTimes::Together::add(std::int64_t start, std::int64_t until) {
    ++count;
    if (start != latest) {
        ++times;
        latest = start;
        first = std::min(first, start);
        last = std::max(last, start);
    }
    end = std::max(end, until);
}

void OddTimes::Together::join(const Together& later) {
    count += later.count;
    times += later.times;
    last = later.last;
    end = std::max(end, later.end);
}

void OddTimes::add(std::uint64_t number, const TimedEvent& event) {
    const std::optional<std::int64_t> start = moment_of(event.ts);
    if (!start || event.ph == "\"M\"") return;
    const std::string kind = in_small_letters(event.cat);
    const bool streamed = is_in(on_stream, kind), encloses = kind == around;
    if (streamed || encloses || is_in(of_host, kind)) kineto_ = true;
    const std::int64_t duration = event.ph == "\"X\"" ? length_of(event.dur) : 0;
    std::int64_t end = *start;
    if (duration > 0) {
        if (streamed) {
            auto [stream, launch] = stream_of(event);
            streams_[std::move(stream)].push_back({*start, duration, number, launch});
        } else if (encloses) {
            around_.push_back({*start, duration, number, -1});
        } else if (duration > silence) {
            long_.push_back({*start, duration, number, -1});
        } else {
            end += duration;
        }
    }
    const std::int64_t bucket = bucket_of(*start);
    if (!recent_ || bucket != recent_bucket_) {
        auto place = together_.find(bucket);
        if (place == together_.end()) {
            if (together_.size() >= most_buckets) return;
            place = together_.emplace(bucket, *start).first;
        }
        recent_ = &place->second;
        recent_bucket_ = bucket;
    }
    recent_->add(*start, end);
}

std::vector<OddTimes::Together> OddTimes::groups() const {
    std::vector<std::int64_t> buckets;
    for (const auto& [bucket, _] : together_) buckets.push_back(bucket);
    std::sort(buckets.begin(), buckets.end());
    std::vector<Together> found;
    const std::int64_t most_apart = kineto_ ? silence : long_silence;
    for (const std::int64_t bucket : buckets) {
        const Together& here = together_.at(bucket);
        if (!found.empty() && found.back().last > 0 && here.first - found.back().last <= most_apart)
            found.back().join(here);
        else
            found.push_back(here);
    }
    while (found.size() > 1 && found[0].last <= 0) {
        // A profile that counts from its own beginning may have an event there.
        const std::int64_t near = kineto_ ? std::min(most_apart, found[1].last - found[1].first) : day;
        if (apart(found[1].first, found[0].last) > near) break;
        found[0].join(found[1]);
        found.erase(found.begin() + 1);
    }
    return found;
}

std::optional<Mending> OddTimes::mending(bool kineto) {
    kineto_ = kineto_ || kineto;
    if (together_.size() >= most_buckets) return std::nullopt;
    const std::vector<Together> found = groups();
    if (found.empty()) return std::nullopt;
    const auto most = std::max_element(found.begin(), found.end(), [](const Together& a, const Together& b) {
        return a.times != b.times ? a.times < b.times : a.count < b.count;
    });
    std::uint64_t left_out = 0, times = 0;
    for (auto group = found.begin(); group != found.end(); ++group)
        if (group != most) left_out += group->count, times += group->times;
    // Which of them are right nobody can tell.
    if (times * least_times > most->times) return std::nullopt;
    Mending mending{most->first, most->last, {}, left_out};
    cut(*most, mending.durations);
    if (!left_out && mending.durations.empty()) return std::nullopt;
    return mending;
}

void OddTimes::cut(const Together& most, std::unordered_map<std::uint64_t, std::int64_t>& durations) {
    const std::int64_t first = most.first, last = most.last;
    std::int64_t end = most.end;
    const auto in_order = [&](const Stream& stream) {
        Stream rows;
        for (const Activity& row : stream)
            if (first <= row.start && row.start <= last) rows.push_back(row);
        std::stable_sort(rows.begin(), rows.end(),
                         [](const Activity& a, const Activity& b) { return a.start < b.start; });
        return rows;
    };
    std::unordered_map<std::int64_t, std::int64_t> ends;  // where those that were cut have ended, and do now
    Stream tails;
    for (const auto& [_, stream] : streams_) {
        const Stream rows = in_order(stream);
        std::size_t looks = 10 * rows.size() + 1000;
        for (std::size_t at = 0; at < rows.size(); ++at) {
            const Activity& row = rows[at];
            // What begins at the same time is no next one, nor is what the same launch has begun: a
            // graph's branches.
            const Activity* next = nullptr;
            for (std::size_t later = at + 1; later < rows.size() && looks && !next; ++later, --looks)
                if (rows[later].start > row.start && (row.launch < 0 || rows[later].launch != row.launch))
                    next = &rows[later];
            if (!next) {
                tails.push_back(row);
                continue;
            }
            const std::int64_t over = apart(row.end(), next->start);
            const bool too_long = over > overlap || over > next->duration + us;
            if (too_long) {
                durations[row.number] = next->start - row.start;
                ends[row.end()] = next->start;
            }
            end = std::max(end, too_long ? next->start : row.end());
        }
    }
    Stream lasting = in_order(long_);
    std::stable_sort(lasting.begin(), lasting.end(),
                     [](const Activity& a, const Activity& b) { return a.end() < b.end(); });
    for (const Activity& row : lasting) {
        if (kineto_ && row.end() > sum(end, std::max(apart(end, first), silence)))
            durations[row.number] = std::max<std::int64_t>(0, apart(end, row.start));
        else
            end = std::max(end, row.end());
    }
    const std::int64_t latest = sum(end, std::max(apart(end, first), tail));
    const Stream enclosing = in_order(around_);
    tails.insert(tails.end(), enclosing.begin(), enclosing.end());
    for (const Activity& row : tails) {
        if (row.end() <= latest) continue;
        durations[row.number] = std::max<std::int64_t>(0, apart(end, row.start));
        ends[row.end()] = end;
    }
    for (const Activity& row : enclosing)
        if (const auto cut_at = ends.find(row.end()); cut_at != ends.end())
            durations.try_emplace(row.number, std::max<std::int64_t>(0, apart(cut_at->second, row.start)));
}

}  // namespace dftrace
