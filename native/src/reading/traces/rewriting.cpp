// Numbers of a line put in place of others.
#include "dftrace/reading/traces/rewriting.hpp"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace dftrace {

namespace {

constexpr std::size_t longest_number = 20;

bool is_digit(char c) noexcept { return static_cast<unsigned>(c - '0') <= 9; }

// Behind `key` at `at` a number of digits; false where something else stands there.
bool number(const char*& at, const char* end, std::string_view key, std::int64_t& value) noexcept {
    if (static_cast<std::size_t>(end - at) <= key.size() || std::memcmp(at, key.data(), key.size()) != 0)
        return false;
    const auto [behind, error] = std::from_chars(at + key.size(), end, value);
    at = behind;
    return error == std::errc() && value >= 0;
}

// Whole microseconds stay whole, so that they stay exact at any size.
char* put_micros(char* at, std::int64_t ns, bool decimals) noexcept {
    at = std::to_chars(at, at + longest_number, ns / 1000).ptr;
    const auto rest = static_cast<int>(ns % 1000);
    if (!decimals && !rest) return at;
    *at++ = '.';
    *at++ = static_cast<char>('0' + rest / 100);
    *at++ = static_cast<char>('0' + rest / 10 % 10);
    *at++ = static_cast<char>('0' + rest % 10);
    return at;
}

char* put(char* at, std::string_view text) noexcept { return at + text.copy(at, text.size()); }

}  // namespace

Rewriting::Rewriting(Rewritten how) : how_(std::move(how)) {
    same_ = how_.pid == how_.new_pid && how_.clock.keeps_durations() && how_.clock.of(0) == 0 &&
            how_.clock.of(ShownClock::most_ns / 2) == ShownClock::most_ns / 2;
    if (how_.packed) members_.emplace(BlockDeflate::quick_level);
}

Rewriting::Place Rewriting::place_of(std::int64_t begin, std::int64_t end) const noexcept {
    if (!how_.window) return Place::inside;
    const auto [first, last] = *how_.window;
    if (end < first - margin_ns || begin > last + margin_ns) return Place::outside;
    return begin <= last - margin_ns && end >= first + margin_ns ? Place::inside : Place::edge;
}

bool Rewriting::is_kept(std::uint32_t number) {
    if (!how_.kept) return true;
    if (generation_ != walk_.generation()) {
        generation_ = walk_.generation();
        kept_.clear();
    }
    if (number >= kept_.size()) kept_.resize(std::size_t{number} + number / 2 + 16);
    if (!kept_[number]) {
        const Label& label = walk_.labels()[number];
        const bool any = std::any_of(how_.kept->begin(), how_.kept->end(), [&](const Label& one) {
            return one.category == label.category && (one.name.empty() || one.name == label.name);
        });
        kept_[number] = any ? 1 : 2;
    }
    return kept_[number] == 1;
}

bool Rewriting::step() {
    constexpr std::string_view known = "XiCsf";
    while (walk_.step()) {
        const std::size_t row = walk_.row();
        if (row == LineWalk::no_row || how_.gives_all) return true;
        const Rows& rows = walk_.rows();
        const auto ph = static_cast<char>(rows.ph[row]);
        const std::int64_t start = rows.start[row];
        if (rows.form[row] == other_form || start == no_time || known.find(ph) == known.npos ||
            (ph == 'C' && how_.gives_counters))
            return true;
        if (how_.kept && (ph != 'X' || !is_kept(rows.label[row]))) continue;
        const std::int64_t duration = std::max<std::int64_t>(rows.duration[row], 0);
        const std::int64_t begin = how_.clock.of(start);
        const std::int64_t end = how_.clock.end_of(start, duration);
        const Place place = place_of(begin, end);
        if (place == Place::edge || walk_.style() == TimeStyle::none) return true;
        if (place == Place::inside && !write(walk_.line(), begin, end, rows.duration[row])) return true;
        seen_.add(begin, end);
    }
    return false;
}

bool Rewriting::write(std::string_view line, std::int64_t begin, std::int64_t end, std::int64_t duration) {
    constexpr std::string_view pid_key = ",\"pid\":", tid_key = ",\"tid\":", ts_key = ",\"ts\":",
                               dur_key = ",\"dur\":";
    char* const to = text_.reserve(line.size() + 5 * longest_number);
    char* out = to;
    if (same_) {
        out = dftrace::put(out, line);
    } else {
        // What stands in a text has a backslash before its quotes.
        const std::size_t pid_at = line.find(pid_key);
        if (pid_at == line.npos) return false;
        const char *at = line.data() + pid_at, *const stop = line.data() + line.size();
        std::int64_t pid = 0, tid = 0, ts = 0, dur = 0;
        if (!number(at, stop, pid_key, pid) || !number(at, stop, tid_key, tid) ||
            !number(at, stop, ts_key, ts))
            return false;
        const bool decimals = at < stop && *at == '.';
        for (at += decimals; decimals && at < stop && is_digit(*at);) ++at;
        const bool moves = pid == how_.pid;
        out = dftrace::put(out, line.substr(0, pid_at + pid_key.size()));
        out = std::to_chars(out, out + longest_number, moves ? how_.new_pid : pid).ptr;
        out = dftrace::put(out, tid_key);
        out = std::to_chars(out, out + longest_number, moves && tid == pid ? how_.new_pid : tid).ptr;
        out = dftrace::put(out, ts_key);
        out = put_micros(out, begin, decimals);
        if (duration >= 0 && !how_.clock.keeps_durations()) {
            if (!number(at, stop, dur_key, dur)) return false;
            const bool parts = at < stop && *at == '.';
            for (at += parts; parts && at < stop && is_digit(*at);) ++at;
            out = dftrace::put(out, dur_key);
            out = put_micros(out, end - begin, parts);
        }
        out = dftrace::put(out, {at, static_cast<std::size_t>(stop - at)});
    }
    *out++ = '\n';
    text_.commit_line(out);
    ++written_;
    block_reach_.add(begin, end);
    return true;
}

void Rewriting::put(std::string_view line, bool timed) {
    char* const out = dftrace::put(text_.reserve(line.size() + 1), line);
    *out = '\n';
    text_.commit_line(out + 1);
    if (timed) block_reach_.add(BlockReach::everywhere());
}

std::string_view Rewriting::pack(std::string_view text) {
    if (text.empty() || !members_) return text;
    BlockFacts facts;
    facts.lines = static_cast<std::uint32_t>(std::count(text.begin(), text.end(), '\n'));
    facts.reach = reach_;
    return members_->member(text, facts);
}

std::string_view Rewriting::take(std::string_view packed, bool last) {
    const std::string_view text = text_.view();
    const bool as_it_lies = members_ && !packed.empty() && text.substr(block_at_) == walk_.text() &&
                            (block_at_ == 0 || block_at_ >= least_member);
    taken_.clear();
    if (as_it_lies) {
        taken_ = pack(text.substr(0, block_at_));
        taken_ += packed;
    } else {
        reach_.add(block_reach_);
        if (text.size() >= enough || last) taken_ = pack(text);
    }
    block_reach_ = {};
    if (as_it_lies || text.size() >= enough || last) {
        text_.clear();
        reach_ = {};
    }
    block_at_ = text_.size();
    return taken_;
}

}  // namespace dftrace
