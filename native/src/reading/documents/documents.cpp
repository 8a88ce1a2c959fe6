// From a profile, in any layout of its JSON, to lines.
#include "dftrace/reading/documents/documents.hpp"

#include <algorithm>
#include <charconv>
#include <iterator>

#include "dftrace/text/json_walk.hpp"

namespace dftrace {

namespace {

constexpr std::string_view events_key = "\"traceEvents\"", base_key = "\"baseTimeNanoseconds\"";
// Members beside the events that say something of the process.
constexpr std::string_view kept[] = {base_key, "\"distributedInfo\"", "\"host_name\""};
// Names of members that are kept, by which people know what a file is.
constexpr std::size_t most_members = 64;
// Text that was read is let go when it is so long.
constexpr std::size_t most_read = 1 << 20;

// In the order of the recorder's lines; `args` comes last.
constexpr std::string_view first_members[] = {"\"id\"",  "\"name\"", "\"cat\"", "\"pid\"",
                                              "\"tid\"", "\"ts\"",   "\"dur\"", "\"ph\""};
constexpr std::string_view args_key = "\"args\"";
enum First { id, name, cat, pid, tid, ts, dur, ph, first_count };

// Processes and threads that are called by a text get numbers beyond those that Linux gives; all beyond a
// limit, which no profiler reaches, the same one.
constexpr std::int64_t first_number = (1 << 22) + 1;
constexpr std::size_t most_numbers = 10'000;

// How the names of torch.profiler's steps begin.
constexpr std::string_view step_name = "\"ProfilerStep#", labels_name = "\"process_labels\"";

constexpr const char* cut_within = "the file ends within what begins";
constexpr const char* cut_early = "the file ends too early,";
constexpr const char* broken_json = "broken JSON";

// Of more members a table knows which were there before.
constexpr std::size_t few_members = 24;

bool is_text(std::string_view value) noexcept { return !value.empty() && value.front() == '"'; }

bool is_blank(char c) noexcept { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

std::optional<std::int64_t> whole_number(std::string_view text) noexcept {
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

bool is_of_cpu(std::string_view args) {
    bool told = false;
    if (!args.empty() && args.front() == '{')
        JsonWalk(args).members([&](std::string_view key, std::string_view value) {
            if (key == "\"labels\"") told = value == "\"CPU\"";
        });
    return told;
}

}  // namespace

Documents::Documents(bool listed, std::size_t most_bytes) : most_bytes_(most_bytes) {
    if (listed) return;
    document_.is_list = document_.has_events = endless_ = true;
    at_state_ = State::entry;
}

void Documents::begin() {
    document_ = {};
    at_state_ = State::beginning;
    endless_ = false;
    numbers_.clear();
    count_ = mended_ = 0;
    odd_ = {};
    mending_.reset();
}

void Documents::add(std::string_view text, std::string& lines) {
    if (text.empty()) ends_ = true;
    text_.append(text);
    while (!over() && step(lines)) continue;
    if (at_ == text_.size() || at_ >= most_read) {
        before_ += at_;
        text_.erase(0, at_);
        at_ = 0;
    }
}

int Documents::letter() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    if (at_ < text_.size()) return static_cast<unsigned char>(text_[at_]);
    return ends_ ? no_letter : not_known;
}

std::optional<bool> Documents::goes_on() {
    // Zero bytes are passed over as well, which file systems leave.
    while (at_ < text_.size() && (is_blank(text_[at_]) || text_[at_] == '\0')) ++at_;
    if (at_ < text_.size()) return true;
    return ends_ ? std::optional(false) : std::nullopt;
}

// What steps return: false where they need more text.

bool Documents::open(State next) {
    ++at_;
    at_state_ = next;
    return true;
}

bool Documents::tear(const char* reason, bool damaged) {
    document_.tear = reason;
    document_.torn_at = place();
    document_.damaged = damaged;
    at_state_ = State::over;
    return true;
}

bool Documents::early() { return tear(cut_early, false); }

bool Documents::broken() { return tear(broken_json, true); }

bool Documents::step(std::string& lines) {
    if (at_state_ == State::passing) return pass();
    const int c = letter();
    if (c == not_known) return false;
    switch (at_state_) {
        case State::beginning:
            if (c == no_letter) return early();
            if (c == '{') return open(State::key);
            if (c != '[') return broken();
            document_.is_list = document_.has_events = endless_ = true;
            return open(State::entry);
        case State::entry:
        case State::behind_entry: return step_in_list(c, lines);
        default: return step_in_object(c);
    }
}

bool Documents::step_in_list(int c, std::string& lines) {
    if (c == ']' || (c == no_letter && endless_)) {
        if (c == no_letter) --at_;  // there is none to be passed
        return open(document_.is_list ? State::over : State::behind_value);
    }
    if (c == no_letter) return early();
    if (at_state_ == State::behind_entry) {
        // A comma may stand behind the last one, too.
        if (c == ',') return open(State::entry);
        if (c != '{' || !endless_) return broken();
    }
    if (!take_value(c == '{')) return false;
    if (over()) return true;
    at_state_ = State::behind_entry;
    put_entry(lines);
    return true;
}

bool Documents::step_in_object(int c) {
    if (c == no_letter) return early();
    switch (at_state_) {
        case State::key:
            if (c == '}') return open(State::over);
            if (!take_value(false)) return false;
            if (over()) return true;
            if (!is_text(value_)) return broken();
            key_ = value_;
            if (document_.members.size() < most_members &&
                std::find(document_.members.begin(), document_.members.end(), key_) ==
                    document_.members.end())
                document_.members.push_back(key_);
            at_state_ = State::colon;
            return true;
        case State::colon: return c == ':' ? open(State::value) : broken();
        case State::value: {
            if (key_ == events_key && c == '[') {
                document_.has_events = true;
                return open(State::entry);
            }
            const bool of_use = std::find(std::begin(kept), std::end(kept), key_) != std::end(kept);
            if (!of_use && (c == '[' || c == '{')) {
                depth_ = 0;
                at_state_ = State::passing;
                return true;
            }
            if (!take_value(false)) return false;
            if (over()) return true;
            if (of_use) document_.facts[key_] = value_;
            at_state_ = State::behind_value;
            return true;
        }
        default:
            if (c == '}') return open(State::over);
            return c == ',' ? open(State::key) : broken();
    }
}

// Passes over a value of any size, which nobody needs: only its brackets are looked at.
bool Documents::pass() {
    for (; at_ < text_.size(); ++at_) {
        const char c = text_[at_];
        if (in_string_) {
            in_string_ = escaped_ || c != '"';
            escaped_ = !escaped_ && c == '\\';
        } else if (c == '"') {
            in_string_ = true;
            string_at_ = place();
        } else if (c == '{' || c == '[') {
            ++depth_;
        } else if ((c == '}' || c == ']') && --depth_ == 0) {
            return open(State::behind_value);
        }
    }
    if (!ends_) return false;
    if (!in_string_) return early();
    tear(cut_within, false);
    document_.torn_at = string_at_;
    return true;
}

// Reads a value into `value_`; false where more text is needed. The document may be over then.
bool Documents::take_value(bool with_members) {
    const std::size_t held = text_.size() - at_;
    if (held < wanted_ && !ends_) return false;
    value_.clear();
    places_.clear();
    CompactJson json(text_, at_, ends_, value_);
    const Read read = with_members ? json.object(0,
                                                 [this](std::size_t key, std::size_t value, std::size_t end) {
                                                     places_.insert(places_.end(), {key, value, end});
                                                 })
                                   : json.value();
    wanted_ = 0;
    switch (read) {
        case Read::whole: at_ = json.at(); return true;
        case Read::broken: return broken();
        case Read::too_deep: return tear("JSON that is nested too deeply", true);
        case Read::too_many_digits: return tear("a number of too many digits", true);
        case Read::cut: break;
    }
    if (held > most_bytes_) return broken();
    if (ends_) return tear(cut_within, false);
    // Twice as much each time, so that a long value is not read over and over.
    wanted_ = 2 * held;
    return false;
}

void Documents::put_entry(std::string& lines) {
    ++document_.entries;
    if (value_.front() == '{') {
        settle_members();
        put_event(lines);
    } else {
        ++count_;
        lines.append(value_).push_back('\n');
    }
}

// Finds the members of the event that was read; of those that stand twice the last one counts.
void Documents::settle_members() {
    members_.clear();
    std::unordered_map<std::string_view, std::size_t> known;
    for (std::size_t at = 0; at < places_.size(); at += 3) {
        const std::size_t key = places_[at], value = places_[at + 1], end = places_[at + 2];
        const std::string_view text = value_;
        // The colon stands between them.
        const Member member{text.substr(key, value - 1 - key), text.substr(value, end - value)};
        Member* before = nullptr;
        if (members_.size() < few_members) {
            for (Member& other : members_)
                if (other.key == member.key) before = &other;
        } else {
            if (known.empty())
                for (std::size_t i = 0; i < members_.size(); ++i) known.emplace(members_[i].key, i);
            const auto [place, is_new] = known.emplace(member.key, members_.size());
            if (!is_new) before = &members_[place->second];
        }
        if (before)
            before->value = member.value;
        else
            members_.push_back(member);
    }
}

std::string Documents::number_of(std::string_view text) {
    const std::int64_t next = first_number + static_cast<std::int64_t>(numbers_.size());
    if (numbers_.size() < most_numbers)
        return std::to_string(numbers_.try_emplace(std::string(text), next).first->second);
    const auto known = numbers_.find(std::string(text));
    return std::to_string(known == numbers_.end() ? next : known->second);
}

void Documents::put_event(std::string& lines) {
    Member first[first_count] = {};
    std::string_view args;
    for (const Member& member : members_) {
        const auto place = std::find(std::begin(first_members), std::end(first_members), member.key);
        if (place != std::end(first_members))
            first[place - std::begin(first_members)] = member;
        else if (member.key == args_key)
            args = member.value;
    }
    const bool is_event = !first[ph].key.empty();
    const std::string_view called = first[name].value;
    if (is_text(called) && (called == labels_name || !document_.pid)) {
        const bool tells =
            called.substr(0, step_name.size()) == step_name || (called == labels_name && is_of_cpu(args));
        const std::optional<std::int64_t> number = tells ? whole_number(first[pid].value) : std::nullopt;
        if (number) document_.pid = number;
    }
    std::string numbers[2];
    for (const First member : {pid, tid}) {
        const std::string_view text = first[member].value;
        if (!is_text(text)) continue;
        const bool is_new = member == pid && text != "\"\"" && is_event && !numbers_.count(std::string(text));
        std::string& number = numbers[member - pid] = number_of(text);
        if (is_new) {
            ++count_;
            ++document_.events;
            lines.append(R"({"name":"process_name","pid":)")
                .append(number)
                .append(R"(,"tid":)")
                .append(number);
            lines.append(R"(,"ph":"M","args":{"name":)").append(text).append("}}\n");
        }
        first[member].value = number;
    }
    const std::size_t line = lines.size();
    const auto put = [&](const Member& member) {
        lines.push_back(lines.size() == line ? '{' : ',');
        lines.append(member.key).append(":").append(member.value);
    };
    for (const Member& member : first)
        if (!member.key.empty()) put(member);
    for (const Member& member : members_)
        if (member.key != args_key && std::find(std::begin(first_members), std::end(first_members),
                                                member.key) == std::end(first_members))
            put(member);
    if (!args.empty() && args != "null") put({args_key, args});
    if (lines.size() == line) lines.push_back('{');
    lines.append("}\n");
    if (is_event) {
        ++document_.events;
        odd_.add(count_, {first[ph].value, first[cat].value, first[pid].value, first[tid].value,
                          first[ts].value, first[dur].value, args});
    }
    ++count_;
}

const Mending* Documents::mending() {
    if (!mending_) mending_ = odd_.mending(document_.facts.count(base_key) > 0);
    mended_ = 0;
    return mending_ ? &*mending_ : nullptr;
}

void Documents::mend(std::string_view lines, std::string& mended) {
    while (!lines.empty()) {
        const std::size_t end = std::min(lines.find('\n'), lines.size() - 1) + 1;
        const std::string_view line = lines.substr(0, end);
        lines.remove_prefix(end);
        // What frames the lines is none of the document's.
        if (line == "[\n" || line == "]\n") {
            mended.append(line);
            continue;
        }
        const auto changed = mending_->durations.find(mended_++);
        std::string_view phase, start, duration;
        if (line.front() == '{' && (mending_->left_out || changed != mending_->durations.end()))
            JsonWalk(line).members([&](std::string_view key, std::string_view value) {
                if (key == first_members[ph]) phase = value;
                if (key == first_members[ts]) start = value;
                if (key == first_members[dur]) duration = value;
            });
        if (changed != mending_->durations.end()) {
            const auto at = static_cast<std::size_t>(duration.data() - line.data());
            const std::string fraction = std::to_string(changed->second % 1000);
            mended.append(line, 0, at).append(std::to_string(changed->second / 1000)).append(".");
            mended.append(3 - fraction.size(), '0')
                .append(fraction)
                .append(line.substr(at + duration.size()));
        } else if (!mending_->left_out || mending_->keeps(phase, start)) {
            mended.append(line);
        }
    }
}

}  // namespace dftrace
