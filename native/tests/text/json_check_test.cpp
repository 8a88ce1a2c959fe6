// Which texts are taken for JSON: those of RFC 8259 that a line may hold.
#include "dftrace/text/json_check.hpp"

#include <optional>
#include <string>
#include <string_view>

#include "check.hpp"
#include "json_reader.hpp"

using namespace dftrace;

namespace {

// `text` as the one value of an object, by the strict reader of the tests, which shares nothing with what is
// tested. Nothing where a key stands twice: that is grammar all the same, and so may be what follows.
std::optional<bool> value_by_reader(const std::string& text) {
    try {
        const std::string object = "{\"k\":" + text + "}";
        const auto members = json_members(object);
        // Blanks around a value, and line breaks, are JSON, and no part of a line.
        return members.size() == 1 && members[0].value == text && text.find_first_of("\r\n") == text.npos;
    } catch (const BadJson& error) {
        if (std::string_view(error.what()).starts_with("key stands twice")) return std::nullopt;
        return false;
    }
}

void check_judged(const std::string& text) {
    const bool taken = is_json_value(text);
    if (value_by_reader(text).value_or(taken) != taken) CHECK_EQ(text, taken ? "taken" : "refused");
    if (is_json_string(text) != (taken && text.front() == '"')) CHECK_EQ(text, "a value in quotes");
    // A member has its comma in front; in the middle of a line a blank is nothing.
    if (text.find_first_of(" \t,") == text.npos && is_json_members(",\"m\":" + text) != taken)
        CHECK_EQ(text, "the value of a member");
}

std::string nested(std::size_t depth, const std::string& open, const std::string& inside, char close) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += open;
    return text + inside + std::string(depth, close);
}

}  // namespace

TEST("values of every form, and what one byte more, less or other makes of them") {
    for (const std::string value :
         {"null", "[true,false]", "1234567890123456789012345678901234567890", "-0", "10.250e-05", "0.0E+1",
          R"("forward\"\\\/\b\f\n\r\t")", R"("\u0000\uFFFF\ud83d\ude00")", "\"\xC2\x80\xDF\xBF\x7F\"",
          "\"\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\"", "\"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\"",
          R"({"a":1,"":[{},[],""]})", "{ \"a\" :\t1 , \"b\" : [ 1 , 2 ] }", "[ \t]"}) {
        if (!is_json_value(value)) CHECK_EQ(value, "refused");
        for (std::size_t at = 0; at <= value.size(); ++at) {
            const std::string before = value.substr(0, at), behind = value.substr(at);
            check_judged(before);
            check_judged(behind);
            if (!behind.empty()) check_judged(before + behind.substr(1));
            for (int byte = 0; byte < 256; ++byte) {
                check_judged(before + static_cast<char>(byte) + behind);
                if (!behind.empty()) check_judged(before + static_cast<char>(byte) + behind.substr(1));
            }
        }
    }
}

TEST("members are taken with their commas in front") {
    for (const char* good : {"", ",\"a\":1,\"b\":2", ",\"a\":{\"b\":[1]}", ", \"a\" : 1"})
        if (!is_json_members(good)) CHECK_EQ(good, "refused");
    for (const char* bad :
         {"\"a\":1", ",", ",\"a\"", ",\"a\":", ",\"a\":1,", ",,\"a\":1", ",a:1", ",\"a\":1}", ",\"a\":1\n",
          ",\"a\":1}}\n{\"name\":\"x\"", ",1", ",\"a\":1 \"b\":2"})
        if (is_json_members(bad)) CHECK_EQ(bad, "taken");
}

TEST("names") {
    const auto parts = parts_of_json_name(R"("name":"a\",\"cat\":\"b","cat":"c")");
    REQUIRE(parts);
    CHECK_EQ(parts->name, R"("a\",\"cat\":\"b")");
    CHECK_EQ(parts->category, R"("c")");
    CHECK(is_json_name(R"("name":"\"\u005c","cat":"")"));
    for (const char* bad :
         {"", "\"forward\"", R"("name":"forward")", R"("name":"forward","cat":"compute",)",
          R"("name":"forward","cat":1)", R"("cat":"compute","name":"forward")",
          R"("name":"forward","cat":"compute","ph":"M")", R"(,"name":"forward","cat":"compute")",
          R"({"name":"forward","cat":"compute"})", R"("name": "forward","cat":"compute")",
          "\"name\":\"\n\",\"cat\":\"\"", "\"name\":\"\xFF\",\"cat\":\"\""})
        if (is_json_name(bad)) CHECK_EQ(bad, "taken");
}

TEST("what is nested without end is refused, not followed") {
    CHECK(is_json_value(nested(60, "[", "1", ']')));
    CHECK(is_json_value(nested(60, "{\"a\":", "1", '}')));
    for (const std::size_t depth : {100u, 10'000u, 3'000'000u}) {
        CHECK(!is_json_value(nested(depth, "[", "", ']')));
        CHECK(!is_json_value(nested(depth, "{\"a\":", "1", '}')));
        CHECK(!is_json_value(std::string(depth, '[')));
        CHECK(!is_json_members(",\"a\":" + nested(depth, "[", "", ']')));
    }
}
