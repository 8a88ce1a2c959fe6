// Any bytes at all become a JSON string that every reader takes, Perfetto included.
#include <random>
#include <string>
#include <string_view>

#include "check.hpp"
#include "dftrace/text/json_string.hpp"
#include "json_reader.hpp"

using namespace std::string_literals;

namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

std::string written(std::string_view text) {
    std::string out;
    dftrace::append_json_string(out, text);
    return out;
}

// What `text` has to read back as: valid sequences as they are, any other byte replaced.
std::string as_utf8(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t length = 1;
        while (length <= 4 && !(i + length <= text.size() && is_utf8(text.substr(i, length)))) ++length;
        if (length > 4) {
            out += replacement;
            ++i;
        } else {
            out += text.substr(i, length);
            i += length;
        }
    }
    return out;
}

// Reads back right, and the quote at the end cannot be taken for an escaped one.
bool survives(std::string_view text) {
    const std::string json = written(text);
    if (json.size() >= 3 && json[json.size() - 2] == '\\') return false;
    return json_text(json) == as_utf8(text);
}

}  // namespace

TEST("plain text stays as it is") {
    CHECK_EQ(written(""), "\"\"");
    CHECK_EQ(written("forward"), "\"forward\"");
    CHECK_EQ(written("a/b <c> & 'd' \x7F"), "\"a/b <c> & 'd' \x7F\"");
}

TEST("quotes, backslashes and control characters are escaped") {
    CHECK_EQ(written("say \"hi\""), R"("say \"hi\"")");
    CHECK_EQ(written("C:\\x"), R"("C:\\x")");
    CHECK_EQ(written("a\nb\tc\rd"), R"("a\nb\tc\rd")");
    CHECK_EQ(written("\0\x01\x1f"s), R"("\u0000\u0001\u001f")");
    for (int c = 0; c < 0x20; ++c) CHECK(survives(std::string(3, static_cast<char>(c))));
}

TEST("a final backslash is written so that Perfetto does not swallow the quote behind it") {
    CHECK_EQ(written("\\"), R"("\u005c")");
    CHECK_EQ(written("C:\\dir\\"), R"("C:\\dir\u005c")");
    CHECK_EQ(written("\\\\"), R"("\\\u005c")");
    for (const std::string text : {"\\", "\\\\", "\\\\\\", "x\\", "\"\\"}) CHECK(survives(text));
}

TEST("bytes that are not UTF-8 become replacement characters") {
    const std::string r(replacement);
    const std::pair<std::string, std::string> cases[] = {{"\xF0\x9F\x98", r + r + r},  // cut short
                                                         {"\xE2(\xA1", r + "(" + r},   // in the middle
                                                         {"\xE0\x9F\xBF", r + r + r},  // overlong
                                                         {"\xED\xA0\x80", r + r + r},  // surrogate
                                                         {"\xF4\x90\x80\x80", r + r + r + r},  // above all
                                                         {"é\xFF—中\U0001F600", "é" + r + "—中\U0001F600"}};
    for (const auto& [bytes, expected] : cases) {
        CHECK_EQ(json_text(written(bytes)), expected);
        CHECK_EQ(as_utf8(bytes), expected);
    }
}

TEST("every pair of bytes survives") {
    for (int a = 0; a < 256; ++a)
        for (int b = 0; b < 256; ++b) {
            const std::string text{static_cast<char>(a), static_cast<char>(b)};
            if (!survives(text)) CHECK(survives(text));
        }
}

TEST("random bytes with a bent for trouble survive") {
    constexpr std::string_view nasty("\\\"\x80\xBF\xC2\xC3\xE0\xED\xEF\xF0\xF4\xFF\xA0\x9F\x90 a\n\0u/", 22);
    std::mt19937 random(1);
    for (int i = 0; i < 60'000; ++i) {
        std::string text(random() % 12, ' ');
        for (char& c : text)
            c = random() % 3 ? nasty[random() % nasty.size()] : static_cast<char>(random() & 255);
        if (!survives(text)) {
            CHECK(survives(text));
            return;
        }
    }
}

TEST("a JSON string stands for the text that it was made of") {
    std::mt19937 random(11);
    for (int n = 0; n < 20'000; ++n) {
        std::string text(random() % 24, '\0');
        for (char& c : text) c = static_cast<char>(random() % 4 ? random() % 128 : random() % 256);
        const std::string back = dftrace::text_of_json_string(written(text));
        if (back != as_utf8(text)) CHECK_EQ(back, as_utf8(text));
    }
    CHECK_EQ(dftrace::text_of_json_string(R"("\u0041\u00e9\u4e2d\ud83d\ude00\b\f\n\r\t\/\"\\")"),
             "Aé中😀\b\f\n\r\t/\"\\");
}
