// JSON as Python's `json` takes it where it is not strict.
#include "dftrace/reading/documents/compact_json.hpp"

#include <charconv>
#ifdef __APPLE__
#include <xlocale.h>

#include <cmath>
#include <cstdlib>
#include <string>
#endif

#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

// As deep as Python follows, so that the stack bears it.
constexpr int most_depth = 900;
// Python makes no integers of more.
constexpr std::size_t most_digits = 4300;

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

int hex_digit(char c) noexcept {
    const char lower = static_cast<char>(c | 0x20);
    if (is_digit(c)) return c - '0';
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The number of four hexadecimal digits, or -1.
int hex4(std::string_view digits) noexcept {
    int code = 0;
    for (const char c : digits) {
        const int digit = hex_digit(c);
        if (digit < 0) return -1;
        code = 16 * code + digit;
    }
    return digits.size() == 4 ? code : -1;
}

bool is_high(int code) noexcept { return code >= 0xD800 && code < 0xDC00; }
bool is_low(int code) noexcept { return code >= 0xDC00 && code < 0xE000; }

// Whether a number with a fraction or an exponent is larger than any.
bool is_infinite(std::string_view number) {
#ifdef __APPLE__
    // Its library reads no fractions by from_chars; by the C locale, whichever the program has.
    return std::isinf(strtod_l(std::string(number).c_str(), nullptr, LC_C_LOCALE));
#else
    double value = 0;
    const auto result = std::from_chars(number.data(), number.data() + number.size(), value);
    // What is too small for any is 0.
    return result.ec == std::errc::result_out_of_range && number.find("e-") == number.npos &&
           number.find("E-") == number.npos;
#endif
}

}  // namespace

void CompactJson::blanks() noexcept {
    while (!at_end() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
        ++at_;
}

void CompactJson::begin(char bracket) {
    out_.push_back(bracket);
    ++at_;
}

bool CompactJson::ended(char bracket) {
    blanks();
    if (at_end() || text_[at_] != bracket) return false;
    begin(bracket);
    return true;
}

Read CompactJson::mark(char c) {
    blanks();
    if (at_end()) return Read::cut;
    if (text_[at_] != c) return Read::broken;
    begin(c);
    blanks();
    return Read::whole;
}

Read CompactJson::value(int depth) {
    if (depth > most_depth) return Read::too_deep;
    if (at_end()) return Read::cut;
    switch (text_[at_]) {
        case '"': return string();
        case '{': return object(depth, [](std::size_t, std::size_t, std::size_t) {});
        case '[': return list(depth);
        case 't': return word("true", "true");
        case 'f': return word("false", "false");
        case 'n': return word("null", "null");
        case 'N': return word("NaN", "\"NaN\"");
        case 'I': return word("Infinity", "\"Infinity\"");
        default: return number();
    }
}

Read CompactJson::list(int depth) {
    begin('[');
    if (ended(']')) return Read::whole;
    for (;;) {
        if (const Read read = value(depth + 1); read != Read::whole) return read;
        if (ended(']')) return Read::whole;
        if (const Read read = mark(','); read != Read::whole) return read;
    }
}

Read CompactJson::word(std::string_view word, std::string_view written) {
    const std::string_view here = text_.substr(at_, word.size());
    if (word.substr(0, here.size()) != here) return Read::broken;
    if (here.size() < word.size()) return Read::cut;
    at_ += word.size();
    out_.append(written);
    return Read::whole;
}

Read CompactJson::number() {
    std::size_t at = at_;
    const auto letter = [&] { return at < text_.size() ? text_[at] : '\0'; };
    const auto digits = [&] {
        const std::size_t from = at;
        while (is_digit(letter())) ++at;
        return at > from;
    };
    if (letter() == '-') {
        ++at;
        if (letter() == 'I') return word("-Infinity", "\"-Infinity\"");
    }
    if (letter() == '0')
        ++at;
    else if (!digits())
        return at < text_.size() ? Read::broken : Read::cut;
    bool whole = true;
    if (letter() == '.') {
        ++at;
        whole = false;
        if (!digits()) return at < text_.size() ? Read::broken : Read::cut;
    }
    if (letter() == 'e' || letter() == 'E') {
        ++at;
        whole = false;
        if (letter() == '-' || letter() == '+') ++at;
        if (!digits()) return at < text_.size() ? Read::broken : Read::cut;
    }
    if (at == text_.size() && !ends_) return Read::cut;
    const std::string_view number = text_.substr(at_, at - at_);
    if (whole && number.size() > most_digits) return Read::too_many_digits;
    at_ = at;
    if (!whole && is_infinite(number))
        out_.append("\"").append(number).append("\"");
    else
        out_.append(number);
    return Read::whole;
}

Read CompactJson::string() {
    out_.push_back('"');
    std::size_t at = at_ + 1;
    std::size_t plain = at;  // start of the run that needs no change
    for (; at < text_.size();) {
        const auto c = static_cast<unsigned char>(text_[at]);
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') [[likely]] {
            ++at;
            continue;
        }
        if (const std::size_t length = c < 0x80 ? 0 : utf8_length(text_, at)) {
            at += length;
            continue;
        }
        out_.append(text_, plain, at - plain);
        if (c == '"') {
            out_.push_back('"');
            at_ = at + 1;
            return Read::whole;
        }
        if (c == '\\') {
            if (const Read read = escape(at); read != Read::whole) return read;
        } else {
            c < 0x20 ? put_code(c) : static_cast<void>(out_.append("\xEF\xBF\xBD"));
            ++at;
        }
        plain = at;
    }
    return Read::cut;
}

Read CompactJson::escape(std::size_t& at) {
    constexpr std::string_view kept = "\"\\bfnrt";
    if (at + 1 >= text_.size()) return Read::cut;
    const char c = text_[at + 1];
    if (c == '/' || kept.find(c) != kept.npos) {
        if (c != '/') out_.push_back('\\');
        out_.push_back(c);
        at += 2;
        return Read::whole;
    }
    if (c != 'u') return Read::broken;
    const std::string_view digits = text_.substr(at + 2, 4);
    int code = hex4(digits);
    if (code < 0) {
        const bool cut =
            digits.size() < 4 && hex4(std::string(digits) + std::string(4 - digits.size(), '0')) >= 0;
        return cut ? Read::cut : Read::broken;
    }
    const int low = text_.substr(at + 6, 2) == "\\u" ? hex4(text_.substr(at + 8, 4)) : -1;
    if (is_high(code) && is_low(low)) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
    }
    if (is_high(code) || is_low(code))
        out_.append(text_, at, 6);  // half of a pair is no letter, and stays as it is written
    else
        put_code(static_cast<unsigned>(code));
    at += 6;
    return Read::whole;
}

void CompactJson::put_code(unsigned code) {
    if (code >= 0x20 && code != '"' && code != '\\') return append_utf8(out_, code);
    std::string quoted;
    append_json_string(quoted, std::string(1, static_cast<char>(code)));
    // Of a backslash by itself it takes care that viewers read it.
    out_.append(code == '\\' ? "\\\\" : quoted.substr(1, quoted.size() - 2));
}

}  // namespace dftrace
