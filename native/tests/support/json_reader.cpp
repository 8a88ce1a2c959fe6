// The strict JSON reader.
#include "json_reader.hpp"

#include <cstdint>

namespace {

class Cursor {
  public:
    explicit Cursor(std::string_view text) : text_(text) {}

    bool at_end() const { return at_ == text_.size(); }
    char peek() const { return at_end() ? '\0' : text_[at_]; }
    std::string_view since(std::size_t from) const { return text_.substr(from, at_ - from); }
    std::size_t position() const { return at_; }

    [[noreturn]] void fail(const char* what) const {
        throw BadJson(std::string(what) + " at byte " + std::to_string(at_) + " of " +
                      std::string(text_.substr(0, 400)));
    }
    char take() {
        if (at_end()) fail("ends too early");
        return text_[at_++];
    }
    void expect(char c) {
        if (take() != c) fail("unexpected character");
    }
    void expect(std::string_view word) {
        for (const char c : word) expect(c);
    }
    void spaces() {
        while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
    }

    // The raw text between the quotes; `out` gets what it stands for.
    std::string_view string(std::string* out) {
        expect('"');
        const std::size_t from = at_;
        for (;;) {
            const char c = take();
            if (c == '"') break;
            if (static_cast<unsigned char>(c) < 0x20) fail("control character in a string");
            if (c != '\\') {
                if (out) out->push_back(c);
                continue;
            }
            escape(out);
        }
        const std::string_view raw = text_.substr(from, at_ - 1 - from);
        if (!is_utf8(raw)) fail("string is not UTF-8");
        return raw;
    }

    void value() {
        switch (peek()) {
            case '{': members(nullptr); return;
            case '[': array(); return;
            case '"': string(nullptr); return;
            case 't': expect("true"); return;
            case 'f': expect("false"); return;
            case 'n': expect("null"); return;
            default: number();
        }
    }

    void members(std::vector<JsonMember>* found) {
        std::vector<JsonMember> own;
        std::vector<JsonMember>& all = found ? *found : own;
        expect('{');
        spaces();
        if (peek() == '}') {
            take();
            return;
        }
        for (;;) {
            spaces();
            const std::string_view key = string(nullptr);
            for (const JsonMember& other : all)
                if (other.key == key) fail("key stands twice");
            spaces();
            expect(':');
            spaces();
            const std::size_t from = at_;
            value();
            all.push_back({key, since(from)});
            spaces();
            if (peek() != ',') break;
            take();
        }
        expect('}');
    }

  private:
    unsigned hex4() {
        unsigned code = 0;
        for (int i = 0; i < 4; ++i) {
            const char c = take();
            const int digit = c >= '0' && c <= '9'   ? c - '0'
                              : c >= 'a' && c <= 'f' ? c - 'a' + 10
                              : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                     : -1;
            if (digit < 0) fail("bad hexadecimal digit");
            code = code * 16 + static_cast<unsigned>(digit);
        }
        return code;
    }

    void escape(std::string* out) {
        static constexpr std::string_view letters = "\"\\/bfnrt";
        static constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
        const char c = take();
        if (c != 'u') {
            const auto which = letters.find(c);
            if (which == std::string_view::npos) fail("unknown escape");
            if (out) out->push_back(meanings[which]);
            return;
        }
        unsigned code = hex4();
        if (code >= 0xDC00 && code < 0xE000) fail("lone low surrogate");
        if (code >= 0xD800 && code < 0xDC00) {
            expect("\\u");
            const unsigned low = hex4();
            if (low < 0xDC00 || low >= 0xE000) fail("lone high surrogate");
            code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        }
        if (!out) return;
        const auto put = [out](unsigned byte) { out->push_back(static_cast<char>(byte)); };
        if (code < 0x80) return put(code);
        if (code < 0x800) return put(0xC0 | code >> 6), put(0x80 | (code & 63));
        if (code < 0x10000)
            return put(0xE0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
        put(0xF0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63));
        put(0x80 | (code & 63));
    }

    void array() {
        expect('[');
        spaces();
        if (peek() == ']') {
            take();
            return;
        }
        for (;;) {
            spaces();
            value();
            spaces();
            if (peek() != ',') break;
            take();
        }
        expect(']');
    }

    void digits() {
        if (peek() < '0' || peek() > '9') fail("digit expected");
        while (peek() >= '0' && peek() <= '9') take();
    }

    void number() {
        if (peek() == '-') take();
        if (peek() == '0')
            take();
        else
            digits();
        if (peek() == '.') {
            take();
            digits();
        }
        if (peek() == 'e' || peek() == 'E') {
            take();
            if (peek() == '+' || peek() == '-') take();
            digits();
        }
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace

std::vector<JsonMember> json_members(std::string_view text) {
    Cursor cursor(text);
    std::vector<JsonMember> found;
    found.reserve(12);
    cursor.members(&found);
    if (!cursor.at_end()) cursor.fail("more text behind the object");
    return found;
}

std::string json_text(std::string_view quoted) {
    Cursor cursor(quoted);
    std::string text;
    cursor.string(&text);
    if (!cursor.at_end()) cursor.fail("more text behind the string");
    return text;
}

bool is_utf8(std::string_view text) {
    for (std::size_t i = 0; i < text.size();) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const int more = byte < 0x80       ? 0
                         : byte >> 5 == 6  ? 1
                         : byte >> 4 == 14 ? 2
                         : byte >> 3 == 30 ? 3
                                           : -1;
        if (more < 0 || i + static_cast<std::size_t>(more) >= text.size()) return false;
        std::uint32_t code = more == 0 ? byte : byte & (0x3Fu >> more);
        for (int k = 1; k <= more; ++k) {
            const auto next = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
            if (next >> 6 != 2) return false;
            code = code << 6 | (next & 63u);
        }
        constexpr std::uint32_t least[] = {0, 0x80, 0x800, 0x10000};
        if (code < least[more] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) return false;
        i += static_cast<std::size_t>(more) + 1;
    }
    return true;
}
