// JSON strings, and what of a text is UTF-8.
#include "dftrace/text/json_string.hpp"

#include <charconv>

namespace dftrace {

std::size_t utf8_length(std::string_view s, std::size_t at) noexcept {
    const auto byte = [&](std::size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0u; };
    const auto continues = [&](std::size_t i, unsigned low = 0x80, unsigned high = 0xBF) {
        return byte(i) >= low && byte(i) <= high;
    };
    const unsigned b = byte(at);
    if (b < 0x80) return 1;
    if (b >= 0xC2 && b <= 0xDF) return continues(at + 1) ? 2 : 0;
    if (b >= 0xE0 && b <= 0xEF) {
        const unsigned low = b == 0xE0 ? 0xA0 : 0x80, high = b == 0xED ? 0x9F : 0xBF;
        return continues(at + 1, low, high) && continues(at + 2) ? 3 : 0;
    }
    if (b >= 0xF0 && b <= 0xF4) {
        const unsigned low = b == 0xF0 ? 0x90 : 0x80, high = b == 0xF4 ? 0x8F : 0xBF;
        return continues(at + 1, low, high) && continues(at + 2) && continues(at + 3) ? 4 : 0;
    }
    return 0;
}

namespace {

unsigned hex4(std::string_view digits) {
    unsigned code = 0;
    std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    return code;
}

}  // namespace

void append_utf8(std::string& out, unsigned code) {
    const auto put = [&out](unsigned byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) return put(code);
    if (code < 0x800) {
        put(0xC0 | code >> 6);
    } else {
        if (code < 0x10000) {
            put(0xE0 | code >> 12);
        } else {
            put(0xF0 | code >> 18);
            put(0x80 | (code >> 12 & 0x3F));
        }
        put(0x80 | (code >> 6 & 0x3F));
    }
    put(0x80 | (code & 0x3F));
}

std::string text_of_json_string(std::string_view json) {
    constexpr std::string_view letters = "bfnrt", meant = "\b\f\n\r\t";
    std::string out;
    for (std::size_t i = 1; i + 1 < json.size(); ++i) {
        if (json[i] != '\\') {
            out.push_back(json[i]);
            continue;
        }
        const char c = json[++i];
        if (c != 'u') {
            const std::size_t letter = letters.find(c);
            out.push_back(letter == letters.npos ? c : meant[letter]);
            continue;
        }
        unsigned code = hex4(json.substr(i + 1, 4));
        i += 4;
        if (code >= 0xD800 && code < 0xDC00) {
            code = 0x10000 + ((code - 0xD800) << 10) + (hex4(json.substr(i + 3, 4)) - 0xDC00);
            i += 6;
        }
        append_utf8(out, code);
    }
    return out;
}

void append_json_string(std::string& out, std::string_view text) {
    static constexpr char hex[] = "0123456789abcdef";
    out.push_back('"');
    std::size_t plain = 0;  // start of the run that needs no change
    std::size_t i = 0;
    while (i < text.size()) {
        const auto c = static_cast<unsigned char>(text[i]);
        if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') [[likely]] {
            ++i;
            continue;
        }
        if (c >= 0x80) {
            if (const std::size_t length = utf8_length(text, i)) {
                i += length;
                continue;
            }
        }
        out.append(text, plain, i - plain);
        if (c == '"')
            out.append("\\\"");
        else if (c == '\\')
            // Perfetto takes `\\"` for an escaped quote and swallows the rest of the file.
            out.append(i + 1 == text.size() ? "\\u005c" : "\\\\");
        else if (c == '\n')
            out.append("\\n");
        else if (c == '\t')
            out.append("\\t");
        else if (c == '\r')
            out.append("\\r");
        else if (c < 0x20) {
            out.append("\\u00");
            out.push_back(hex[c >> 4]);
            out.push_back(hex[c & 15]);
        } else
            out.append("\xEF\xBF\xBD");
        plain = ++i;
    }
    out.append(text, plain, text.size() - plain);
    out.push_back('"');
}

}  // namespace dftrace
