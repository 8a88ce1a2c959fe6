// What the models of the format take for sure, of lines that are known to be JSON.
//
// Nothing here finds a fault. Where anything is unusual the answer is `none`, and the rules, which are in
// Python, decide and say why.
#include "dftrace/reading/traces/plain_lines.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace dftrace {

namespace {

// Longer lines have a way of their own through the rules.
constexpr std::size_t most_line_bytes = 16 * 1024;
constexpr std::size_t most_members = 32;
constexpr std::size_t longest_kept = 512;
// Fewer digits make a number of 64 bits, whatever they are; and twice as many, some of them decimals, a
// finite one.
constexpr std::ptrdiff_t most_digits = 18;
constexpr std::string_view greatest_whole = "9223372036854775807";

bool is_digit(char c) noexcept { return static_cast<unsigned>(c - '0') <= 9; }

bool take(const char*& at, std::string_view text) noexcept {
    if (std::memcmp(at, text.data(), text.size()) != 0) return false;
    at += text.size();
    return true;
}

// From behind a quote to behind the one that ends the string.
bool to_end_of_string(const char*& at) noexcept {
    for (;; ++at) {
        if (*at == '"') return ++at, true;
        if (*at != '\\') continue;
        ++at;
        if (*at == '\\' && at[1] == '"') return false;
    }
}

bool number(const char*& at) noexcept {
    const char* const from = at;
    for (bool fraction = false;; ++at) {
        if (is_digit(*at)) continue;
        if (*at == 'e' || *at == 'E') {
            // Two digits at most: far from what a double cannot hold.
            at += at[1] == '-' || at[1] == '+' ? 2 : 1;
            const char* const exponent = at;
            while (is_digit(*at)) ++at;
            return at - exponent <= 2 && exponent - from <= 2 * most_digits;
        }
        if (*at == '-' || *at == '.') {
            fraction |= *at == '.';
            continue;
        }
        const std::string_view written(from, static_cast<std::size_t>(at - from));
        return at - from <= (fraction ? 2 : 1) * most_digits ||
               (!fraction && *from != '-' && written.size() == greatest_whole.size() &&
                written <= greatest_whole);
    }
}

// The names of an object: none twice, none with an escape, which could be another spelling of one.
class Names {
  public:
    bool add(std::string_view name) noexcept {
        if (size_ == static_cast<std::ptrdiff_t>(names_.size()) || name.find('\\') != name.npos) return false;
        if (std::find(names_.begin(), names_.begin() + size_, name) != names_.begin() + size_) return false;
        names_[static_cast<std::size_t>(size_++)] = name;
        return true;
    }

  private:
    std::array<std::string_view, most_members> names_;
    std::ptrdiff_t size_ = 0;
};

bool name(const char*& at, Names& names) noexcept {
    const char* const from = ++at;
    if (!to_end_of_string(at) || !names.add({from, static_cast<std::size_t>(at - 1 - from)})) return false;
    ++at;  // the colon
    return true;
}

// A list holds no null, for viewers would move what is behind it.
bool value(const char*& at, bool in_list) noexcept {
    switch (*at) {
        case '"': return to_end_of_string(++at);
        case 't': return at += 4, true;
        case 'f': return at += 5, true;
        case 'n': return at += 4, !in_list;
        case '[':
            if (*++at == ']') return ++at, true;
            do {
                if (!value(at, true)) return false;
            } while (*at++ == ',');
            return true;
        case '{': {
            if (*++at == '}') return ++at, true;
            Names names;
            do {
                if (!name(at, names) || !value(at, false)) return false;
            } while (*at++ == ',');
            return true;
        }
        default: return number(at);
    }
}

bool are_numbers(std::string_view members) noexcept {
    const char* at = members.data();
    const char* const end = at + members.size();
    Names names;
    for (; at < end; ++at)  // behind the comma
        if (!name(at, names) || (!is_digit(*at) && *at != '-') || !number(at)) return false;
    return true;
}

bool is_hash(std::string_view text) noexcept {
    return text.size() == 16 && std::all_of(text.begin(), text.end(),
                                            [](char c) { return is_digit(c) || (c >= 'a' && c <= 'f'); });
}

bool ends_well(const std::string& text) noexcept { return text.empty() || text.back() != '\\'; }

}  // namespace

const PlainLines::LabelFacts& PlainLines::facts_of(std::uint32_t number) {
    if (number >= facts_.size()) facts_.resize(std::size_t{number} + number / 2 + 16);
    LabelFacts& facts = facts_[number];
    if (!facts.known) {
        const Label& label = labels_[number];
        facts.known = true;
        facts.whole = ends_well(label.name) && ends_well(label.category);
        facts.counter = label.category == "counter";
        facts.flow = label.category == "flow";
        facts.inspection =
            label.category == "tensor_stats" || label.category == "nonfinite" || label.category == "inspect";
    }
    return facts;
}

// Viewers keep 32 bits of the numbers of processes and threads.
bool PlainLines::is_track_kept(std::uint32_t number) {
    if (number >= tracks_.size()) tracks_.resize(std::size_t{number} + number / 2 + 16);
    if (!tracks_[number]) {
        const TrackId id = labels_.track_id(number);
        constexpr std::int64_t most = std::numeric_limits<std::uint32_t>::max();
        tracks_[number] = id.pid >= 0 && id.pid <= most && id.tid >= 1 && id.tid <= most ? 1 : 2;
    }
    return tracks_[number] == 1;
}

bool PlainLines::are_more_kept(std::string_view members) {
    if (members == more_) return true;
    const char* at = members.data();
    const char* const end = at + members.size();
    Names names;
    for (const std::string_view own : {"hhash", "p_idx", "level"}) names.add(own);
    while (at < end) {
        ++at;  // the comma
        if (!name(at, names) || !value(at, false)) return false;
    }
    if (members.size() <= longest_kept) more_ = members;
    return true;
}

// Of a span or an instant: the recorder's own come first.
bool PlainLines::are_arguments_kept(std::string_view args) {
    const char* at = args.data();
    if (host_.empty() || args.size() < host_.size() || !take(at, host_)) {
        constexpr std::string_view before = "\"hhash\":\"";
        at += before.size();
        const char* const hash = at;
        if (!to_end_of_string(at) || !is_hash({hash, static_cast<std::size_t>(at - 1 - hash)})) return false;
        host_.assign(args.data(), at);
    }
    // The scanner has found them to be whole numbers.
    if (take(at, ",\"p_idx\":")) {
        while (is_digit(*at)) ++at;
        if (!take(at, ",\"level\":")) return false;
        while (is_digit(*at)) ++at;
    }
    return are_more_kept({at, static_cast<std::size_t>(args.data() + args.size() - at)});
}

TimeStyle PlainLines::style_of(const Rows& rows, std::size_t row, std::string_view text) {
    constexpr std::uint64_t most_id = std::numeric_limits<std::int64_t>::max();
    const auto ph = static_cast<char>(rows.ph[row]);
    const std::uint8_t form = rows.form[row];
    const std::string_view args = text.substr(rows.args_at[row], rows.args_bytes[row]);
    if (form == other_form || !is_track_kept(rows.track[row]) ||
        rows.args_at[row] + args.size() > rows.line_at[row] + most_line_bytes)
        return TimeStyle::none;
    const std::uint8_t all = ph == 'X' ? start_has_decimals | duration_has_decimals : start_has_decimals;
    if (form != 0 && form != all) return TimeStyle::none;
    const LabelFacts& facts = facts_of(rows.label[row]);
    const bool numbered = rows.id[row] >= 1 && rows.id[row] <= most_id;
    bool well = false;
    switch (ph) {
        case 'X': well = numbered && are_arguments_kept(args); break;
        case 'i': well = numbered && !facts.inspection && are_arguments_kept(args); break;
        case 'C': well = numbered && facts.counter && are_numbers(args); break;
        case 's':
        case 'f': well = facts.flow; break;
        default: break;
    }
    if (!well || !facts.whole) return TimeStyle::none;
    return form ? TimeStyle::three_decimals : TimeStyle::whole_micros;
}

}  // namespace dftrace
