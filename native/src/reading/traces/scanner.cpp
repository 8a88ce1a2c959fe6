// The scanner of lines.
#include "dftrace/reading/traces/scanner.hpp"

#include <bit>
#include <cstring>

#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/text/digits.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

// A longer text is not compared with at one go, for what is behind the end of a block is `scan_pad`.
constexpr std::size_t longest_guess = 200;

// A bit in the lowest byte that is 0; bytes above it may have one, too.
constexpr std::uint64_t zero_bytes(std::uint64_t word) noexcept {
    return (word - every_byte(1)) & ~word & high_bits;
}

template <std::size_t size>
bool literal(const char*& at, const char (&text)[size]) noexcept {
    if (std::memcmp(at, text, size - 1) != 0) return false;
    at += size - 1;
    return true;
}

bool same(const char* at, const std::string& text) noexcept {
    return !text.empty() && same_bytes(at, text.data(), text.size());
}

// One to 19 digits without a leading zero, eight at a time.
[[gnu::always_inline]] inline bool digits(const char*& at, std::uint64_t& number) noexcept {
    static constexpr std::uint64_t ten_to[] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};
    const char* const from = at;
    number = 0;
    for (;;) {
        const std::uint64_t word = word_at(at);
        const unsigned count = count_digits(word);
        if (count == 0) break;
        if (static_cast<std::size_t>(at - from) + count > 19) return false;
        number = number * ten_to[count] + number_of_digits(word, count);
        at += count;
        if (count < 8) break;
    }
    return at != from && (*from != '0' || at == from + 1);
}

inline bool micros(const char*& at, std::int64_t& ns, bool& decimals) noexcept {
    std::uint64_t whole;
    if (!digits(at, whole) || whole >= static_cast<std::uint64_t>(most_micros)) return false;
    ns = static_cast<std::int64_t>(whole) * 1000;
    decimals = *at == '.';
    if (!decimals) return true;
    const auto digit = [at](int place) { return static_cast<unsigned>(at[place] - '0'); };
    if (digit(1) > 9 || digit(2) > 9 || digit(3) > 9 || digit(4) <= 9) return false;
    ns += digit(1) * 100 + digit(2) * 10 + digit(3);
    at += 4;
    return true;
}

// From behind a quote to the quote that ends the string. Escapes of code points are the general reader's.
bool to_quote(const char*& at, bool& beyond_ascii) noexcept {
    std::uint64_t seen = 0;
    for (;;) {
        const std::uint64_t word = word_at(at);
        const std::uint64_t low = (word - every_byte(0x20)) & ~word & high_bits;
        const std::uint64_t found =
            low | zero_bytes(word ^ every_byte('"')) | zero_bytes(word ^ every_byte('\\'));
        seen |= word;
        if (!found) {
            at += 8;
            continue;
        }
        at += std::countr_zero(found) >> 3;
        if (*at == '"') {
            beyond_ascii |= (seen & high_bits) != 0;
            return true;
        }
        constexpr std::string_view letters = "\"\\/bfnrt";
        if (*at != '\\' || letters.find(at[1]) == letters.npos) return false;
        at += 2;
    }
}

bool is_utf8(std::string_view text) noexcept {
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t bytes = utf8_length(text, at);
        if (bytes == 0) return false;
        at += bytes;
    }
    return true;
}

}  // namespace

char* PlainText::room_for(std::size_t bytes) {
    if (bytes_.size() < bytes + scan_pad) bytes_ = std::vector<char>(bytes + bytes / 4 + scan_pad);
    return bytes_.data();
}

void PlainText::close(std::size_t bytes) noexcept {
    std::memset(bytes_.data() + bytes, '\n', scan_pad);
    size_ = bytes;
}

bool Scanner::named(const char*& at, std::uint32_t& label) {
    const Labels::Spelling*& guess = next_[last_label_];
    if (guess && same(at, guess->text) && at[guess->text.size()] == '"') {
        at += guess->text.size() + 1;
        label = last_label_ = guess->label;
        return true;
    }
    const char* const from = at;
    bool any = false;
    if (!to_quote(at, any)) return false;
    const auto name_bytes = static_cast<std::size_t>(at - from);
    if (!literal(at, "\",\"cat\":\"") || !to_quote(at, any)) return false;
    const Labels::Spelling* const found =
        known_.spelling(from, static_cast<std::size_t>(at - from), name_bytes);
    if (!found) return false;
    ++at;
    guess = found->text.size() <= longest_guess ? found : nullptr;
    label = last_label_ = found->label;
    if (last_label_ >= next_.size()) next_.resize(2 * std::size_t{last_label_} + 1);
    return true;
}

bool Scanner::tracked(const char*& at) {
    if (same(at, track_text_)) {
        at += track_text_.size();
        return true;
    }
    const char* const from = at;
    std::uint64_t pid, tid;
    if (!literal(at, ",\"pid\":") || !digits(at, pid) || !literal(at, ",\"tid\":") || !digits(at, tid) ||
        !literal(at, ",\"ts\":") || pid >> 63 || tid >> 63)
        return false;
    track_ = known_.track({static_cast<std::int64_t>(pid), static_cast<std::int64_t>(tid)});
    track_text_.assign(from, at);
    return true;
}

bool Scanner::key(const char*& at) {
    return *at == '"' && to_quote(++at, beyond_ascii_) && literal(at, "\":");
}

// What an object or a list holds, from behind its bracket on.
bool Scanner::inside(const char*& at, char close, int depth) {
    if (*at == close) return ++at, true;
    do {
        if ((close == '}' && !key(at)) || !value(at, depth)) return false;
    } while (*at++ == ',');
    return at[-1] == close;
}

// Without blanks. What is nested deeper is the general reader's.
bool Scanner::value(const char*& at, int depth) {
    constexpr int most_depth = 32;
    switch (*at) {
        case '{': return depth < most_depth && inside(++at, '}', depth + 1);
        case '[': return depth < most_depth && inside(++at, ']', depth + 1);
        case '"': return to_quote(++at, beyond_ascii_) && (++at, true);
        case 't': return literal(at, "true");
        case 'f': return literal(at, "false");
        case 'n': return literal(at, "null");
        default: return pass_json_number(at);
    }
}

bool Scanner::member(const char*& at) {
    const char* const from = at;
    // Elsewhere than in the layout.
    return key(at) && std::memcmp(from, "\"p_idx\"", 7) != 0 && value(at, 0);
}

// Members with a comma before each, up to the brace.
bool Scanner::members(const char*& at) {
    while (*at == ',')
        if (!member(++at)) return false;
    return true;
}

// Events of one name tell the same things in the same order, as other numbers.
bool Scanner::members_as_before(const char*& at) {
    ArgumentPattern& pattern = patterns_[last_label_ % patterns_.size()];
    if (pattern.pass(at, [](const char*& number, std::size_t) { return pass_json_number(number); }))
        return true;
    const char* const from = at;
    if (!members(at) || !literal(at, "}}\n")) return false;
    if (!beyond_ascii_) pattern.learn({from, static_cast<std::size_t>(at - from)});
    return true;
}

// False for a line that has another form; the row is then written anew.
bool Scanner::in_layout(const char* at, Rows& rows, const char*& end) {
    const std::size_t row = rows.size;
    const char* const from = at;
    beyond_ascii_ = false;
    if (!literal(at, "{\"id\":") || !digits(at, rows.id[row]) || !literal(at, ",\"name\":\"") ||
        !named(at, rows.label[row]) || !tracked(at))
        return false;
    rows.track[row] = track_;
    bool start_decimals, duration_decimals = false;
    if (!micros(at, rows.start[row], start_decimals)) return false;
    rows.duration[row] = -1;
    if (literal(at, ",\"dur\":") && !micros(at, rows.duration[row], duration_decimals)) return false;
    rows.line_at[row] = static_cast<std::uint32_t>(from - text_);
    rows.form[row] = static_cast<std::uint8_t>((start_decimals ? start_has_decimals : 0) |
                                               (duration_decimals ? duration_has_decimals : 0));
    if (!literal(at, ",\"ph\":\"")) return false;
    const char ph = *at++;
    rows.ph[row] = static_cast<std::uint8_t>(ph);
    if ((ph == 'X') != (rows.duration[row] >= 0)) return false;
    rows.parent[row] = no_parent;
    rows.args_at[row] = rows.args_bytes[row] = 0;
    switch (ph) {
        case 'X':
        case 'B':
            if (!literal(at, "\",")) return false;
            break;
        case 'i':
            if (!literal(at, "\",\"s\":\"t\",")) return false;
            break;
        case 's': end = at; return literal(end, "\"}\n");
        case 'f': end = at; return literal(end, "\",\"bp\":\"e\"}\n");
        case 'C': {
            if (!literal(at, "\",\"args\":{")) return false;
            const char* const args = at;
            if (*at != '}' && (!member(at) || !members(at))) return false;
            if (!literal(at, "}}\n")) return false;
            rows.args_at[row] = static_cast<std::uint32_t>(args - text_);
            rows.args_bytes[row] = static_cast<std::uint32_t>(at - 3 - args);
            end = at;
            return !beyond_ascii_ || is_utf8({from, static_cast<std::size_t>(end - from)});
        }
        default: return false;
    }
    const char* const args_member = at;
    if (same(at, host_text_)) {
        at += host_text_.size();
    } else {
        bool any = false;
        if (!literal(at, "\"args\":{\"hhash\":\"") || !to_quote(at, any)) return false;
        ++at;
        const auto bytes = static_cast<std::size_t>(at - args_member);
        if (!any && bytes <= longest_guess) host_text_.assign(args_member, bytes);
        beyond_ascii_ |= any;
    }
    if (literal(at, ",\"p_idx\":")) {
        std::uint64_t level;
        if (!digits(at, rows.parent[row]) || !literal(at, ",\"level\":") || !digits(at, level)) return false;
    }
    const char* const args = args_member + std::strlen("\"args\":{");
    if (!members_as_before(at)) return false;
    rows.args_at[row] = static_cast<std::uint32_t>(args - text_);
    rows.args_bytes[row] = static_cast<std::uint32_t>(at - 3 - args);
    end = at;
    return !beyond_ascii_ || is_utf8({from, static_cast<std::size_t>(end - from)});
}

// A line of samples as the recorder writes it, whose arguments are left to who asks for them.
bool Scanner::of_stacks(const char* at, Rows& rows, const char*& end) {
    if (!literal(at, "{\"name\":\"Profile")) return false;
    StackLine line;
    const bool chunk = literal(at, "Chunk");
    std::int64_t start;
    bool decimals;
    if (!literal(at, "\",\"cat\":\"stack\",\"id\":") || !digits(at, line.id) || !tracked(at) ||
        !micros(at, start, decimals) || !literal(at, ",\"ph\":\"P\",\"args\":{"))
        return false;
    const char* const stop = text_end_ + 1;
    end = static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(stop - at))) + 1;
    if (end - at < 3 || std::memcmp(end - 3, "}}\n", 3) != 0) return false;
    line.args_at = static_cast<std::uint32_t>(at - text_);
    line.args_bytes = static_cast<std::uint32_t>(end - 3 - at);
    line.track = track_;
    line.label = all_.number(stack_category, chunk ? chunk_name : profile_name);
    rows.stacks.push_back(line);
    return true;
}

void Scanner::general(std::string_view line, Rows& rows) {
    const GeneralLine event = read_general_line(line);
    if (event.kind == GeneralLine::Kind::unreadable) ++rows.unreadable;
    if (event.kind == GeneralLine::Kind::samples) {
        StackLine& of = rows.stacks.emplace_back();
        of.args_at = !event.args.data() ? 0 : static_cast<std::uint32_t>(event.args.data() - text_);
        of.args_bytes = static_cast<std::uint32_t>(event.args.size());
        of.track = known_.track({event.pid, event.tid});
        of.label = all_.number(event.category, event.name);
        of.id = event.id;
    }
    if (event.kind != GeneralLine::Kind::event) return;
    const std::size_t row = rows.size++;
    rows.line_at[row] = static_cast<std::uint32_t>(line.data() - text_);
    rows.form[row] = other_form;
    rows.ph[row] = event.ph.size() == 1 ? static_cast<std::uint8_t>(event.ph[0]) : 0;
    if (rows.ph[row] == 0) rows.phases.emplace_back(row, event.ph);
    rows.label[row] = all_.number(event.category, event.name);
    rows.track[row] = known_.track({event.pid, event.tid});
    rows.id[row] = event.id;
    rows.parent[row] = event.parent;
    rows.start[row] = event.start;
    rows.duration[row] = event.ph == "X" ? event.duration : -1;
    rows.args_at[row] = !event.args.data() ? 0 : static_cast<std::uint32_t>(event.args.data() - text_);
    rows.args_bytes[row] = static_cast<std::uint32_t>(event.args.size());
}

void Scanner::scan(const PlainText& text, Rows& rows) {
    rows.clear();
    text_ = text.data();
    const char* const stop = text_end_ = text_ + text.size();
    for (const char* at = text_; at < stop; ++rows.lines) {
        rows.make_room(rows.size + 1);
        const char* end;
        if (in_layout(at, rows, end)) {
            ++rows.size;
        } else if (!of_stacks(at, rows, end)) {
            end =
                static_cast<const char*>(std::memchr(at, '\n', static_cast<std::size_t>(stop - at) + 1)) + 1;
            general({at, static_cast<std::size_t>(end - at) - 1}, rows);
        }
        at = end;
    }
}

}  // namespace dftrace
