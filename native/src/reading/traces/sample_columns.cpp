// A line is taken whole or not at all: what cannot be is found before anything of it is kept.
#include "dftrace/reading/traces/sample_columns.hpp"

#include <algorithm>
#include <numeric>

#include "dftrace/reading/traces/general_line.hpp"

namespace dftrace {

namespace {

constexpr std::int64_t most_us = std::int64_t{1} << 53;
constexpr std::int64_t most_late = 1 << 20;  // periods
// A sample stands for no more than some months, and all of a reader for no more than a sum has room for.
constexpr std::int64_t most_stood_ns = std::int64_t{1} << 53;
constexpr std::int64_t most_whole_ns = std::int64_t{1} << 62;
constexpr std::int64_t not_known = -1;
constexpr std::ptrdiff_t most_digits = 18;

// What stands next in a text, step by step.
class Numbers {
  public:
    explicit Numbers(std::string_view text) : at_(text.data()), end_(at_ + text.size()) {}

    bool over() const noexcept { return at_ == end_; }
    bool literal(std::string_view text) noexcept {
        const bool is_there = std::string_view(at_, left()).starts_with(text);
        if (is_there) at_ += text.size();
        return is_there;
    }
    bool text() noexcept {
        const std::string_view rest(at_, left());
        const std::size_t quote = rest.starts_with('"') ? rest.find_first_of("\"\\", 1) : rest.npos;
        if (quote == rest.npos || rest[quote] != '"') return false;
        at_ += quote + 1;
        return true;
    }
    bool number(std::int64_t& value) noexcept {
        const bool negative = at_ < end_ && *at_ == '-';
        const char* const first = at_ + negative;
        const char* next = first;
        std::int64_t found = 0;
        for (; next < end_ && *next >= '0' && *next <= '9' && next - first < most_digits; ++next)
            found = 10 * found + (*next - '0');
        if (next == first || (*first == '0' && next - first > 1)) return false;
        value = negative ? -found : found;
        at_ = next;
        return true;
    }
    // `[1,2,3]`
    bool list(std::vector<std::int64_t>& values) {
        values.clear();
        if (!literal("[")) return false;
        if (literal("]")) return true;
        std::int64_t value;
        do {
            if (!number(value)) return false;
            values.push_back(value);
        } while (literal(","));
        return literal("]");
    }

  private:
    std::size_t left() const noexcept { return static_cast<std::size_t>(end_ - at_); }
    const char* at_;
    const char* end_;
};

bool all_between(const std::vector<std::int64_t>& values, std::int64_t least, std::int64_t most) {
    return std::ranges::all_of(values, [=](std::int64_t value) { return value >= least && value <= most; });
}

// False where a sum would be too large to be a time.
bool add_up(const std::vector<std::int64_t>& values, std::int64_t& sum) {
    for (const std::int64_t value : values)
        if ((sum += value) >= most_us) return false;
    return true;
}

}  // namespace

void SampleColumns::begin(std::int64_t pid, std::uint64_t number, std::int64_t at_us,
                          std::int64_t period_ns) {
    profiles_[{pid, number}] = {at_us, period_ns, {}};
}

bool SampleColumns::learn(std::int64_t pid, std::uint64_t number, std::int64_t node, std::int64_t stack) {
    const auto found = profiles_.find({pid, number});
    if (found == profiles_.end()) return false;
    found->second.stack_of.insert_or_assign(node, stack);
    return true;
}

std::optional<std::int64_t> SampleColumns::stack_of(std::int64_t pid, std::uint64_t number,
                                                    std::int64_t node) const {
    const auto profile = profiles_.find({pid, number});
    if (profile == profiles_.end()) return std::nullopt;
    const auto found = profile->second.stack_of.find(node);
    return found == profile->second.stack_of.end() ? std::nullopt : std::optional(found->second);
}

std::size_t SampleColumns::take(const std::vector<StackLine>& lines, std::size_t from, std::string_view text,
                                const Labels& labels) {
    for (; from < lines.size(); ++from) {
        const StackLine& line = lines[from];
        const TrackId track = labels.track_id(line.track);
        if (labels[line.label].name != chunk_name ||
            !add(track.pid, line.id, track.tid, text.substr(line.args_at, line.args_bytes)))
            break;
    }
    return from;
}

bool SampleColumns::add(std::int64_t pid, std::uint64_t number, std::int64_t tid, std::string_view args) {
    const auto known = profiles_.find({pid, number});
    if (known == profiles_.end()) return false;
    Profile& profile = known->second;
    Numbers next(args);
    if (next.literal("\"hhash\":") && !(next.text() && next.literal(","))) return false;
    std::int64_t ready_us = not_known, missed = 0;
    if (!next.literal("\"data\":{\"cpuProfile\":{\"samples\":") || !next.list(stacks_) ||
        !next.literal("},\"timeDeltas\":") || !next.list(since_) || !next.literal(",\"cpu\":") ||
        !next.list(cpu_) || !next.literal(",\"cut\":") || !next.list(cut_))
        return false;
    late_.clear();
    if ((next.literal(",\"late\":") && !next.list(late_)) ||
        (next.literal(",\"ready\":") && !next.number(ready_us)) ||
        (next.literal(",\"missed\":") && !next.number(missed)) || !next.literal("}") || !next.over())
        return false;
    const std::size_t count = stacks_.size();
    if (since_.size() != count || cpu_.size() != count || cut_.size() != count ||
        (!late_.empty() && late_.size() != count))
        return false;
    if (!count) return true;
    std::int64_t at_us = profile.at_us, whole = 0;
    if (!all_between(since_, 0, most_us) || !all_between(cpu_, not_known, most_us) ||
        !all_between(cut_, not_known, most_us) || !all_between(late_, 0, most_late) ||
        !add_up(since_, at_us) || !add_up(cpu_, whole) || !add_up(cut_, whole) || ready_us < not_known ||
        ready_us >= most_us)
        return false;
    const std::int64_t most_periods = late_.empty() ? 1 : 1 + std::ranges::max(late_);
    const auto periods = std::accumulate(late_.begin(), late_.end(), static_cast<std::int64_t>(count));
    std::int64_t longest, whole_ns;
    if (__builtin_mul_overflow(most_periods, profile.period_ns, &longest) || longest > most_stood_ns ||
        __builtin_mul_overflow(periods, profile.period_ns, &whole_ns) || whole_ns > most_whole_ns - whole_ns_)
        return false;
    for (std::int64_t& stack : stacks_) {
        const auto found = profile.stack_of.find(stack);
        if (found == profile.stack_of.end()) return false;
        stack = found->second;
    }
    auto& [at, since, cpu, period, ready, thread, stack, cut] = held_[pid];
    for (const std::int64_t delta : since_) at.push_back(profile.at_us += delta);
    since.insert(since.end(), since_.begin(), since_.end());
    cpu.insert(cpu.end(), cpu_.begin(), cpu_.end());
    period.resize(period.size() + count, profile.period_ns);
    for (std::size_t i = 0; i < late_.size(); ++i) period[period.size() - count + i] *= 1 + late_[i];
    const std::int64_t each_ns =
        ready_us < 0 ? not_known : ready_us * 1000 / static_cast<std::int64_t>(count);
    ready.resize(ready.size() + count, each_ns);
    thread.resize(thread.size() + count, tid);
    stack.insert(stack.end(), stacks_.begin(), stacks_.end());
    cut.insert(cut.end(), cut_.begin(), cut_.end());
    size_ += count;
    whole_ns_ += whole_ns;
    return true;
}

std::map<std::int64_t, SampleColumns::Columns> SampleColumns::taken() noexcept {
    size_ = 0;
    return std::exchange(held_, {});
}

}  // namespace dftrace
