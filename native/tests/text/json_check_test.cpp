// Which texts are taken for JSON: a table of what RFC 8259 allows and forbids.
#include "dftrace/text/json_check.hpp"

#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"

using namespace dftrace;
using namespace std::string_view_literals;

namespace {

struct Case {
    std::string_view name;  // y_ is JSON, n_ is none, o_ is JSON that no line of ours may hold
    std::string_view text;
};

constexpr Case values[] = {
    {"y_null", "null"},
    {"y_true", "true"},
    {"y_false", "false"},
    {"y_zero", "0"},
    {"y_minus_zero", "-0"},
    {"y_integer", "1234567890123456789012345678901234567890"},
    {"y_negative", "-7"},
    {"y_fraction", "0.000"},
    {"y_fraction_long", "10.25"},
    {"y_exponent", "1e5"},
    {"y_exponent_large_letter", "1E5"},
    {"y_exponent_plus", "1e+5"},
    {"y_exponent_minus", "-0.5e-05"},
    {"y_empty_string", R"("")"},
    {"y_string", R"("forward")"},
    {"y_escapes", R"("\"\\\/\b\f\n\r\t")"},
    {"y_unicode_escape", R"("\u0000\u00e4\uFFFF")"},
    {"y_surrogate_pair", R"("\ud83d\ude00")"},
    {"y_utf8_two", "\"\xC2\x80\xDF\xBF\""},
    {"y_utf8_three", "\"\xE0\xA0\x80\xED\x9F\xBF\xEE\x80\x80\xEF\xBF\xBF\""},
    {"y_utf8_four", "\"\xF0\x90\x80\x80\xF4\x8F\xBF\xBF\""},
    {"y_delete_character", "\"\x7F\""},
    {"y_empty_object", "{}"},
    {"y_object", R"({"a":1,"b":[true,null]})"},
    {"y_same_key_twice", R"({"a":1,"a":2})"},
    {"y_empty_key", R"({"":0})"},
    {"y_empty_list", "[]"},
    {"y_list", R"([1,"a",{},[],false])"},
    {"y_blanks_inside", "{ \"a\" :\t1 , \"b\" : [ 1 , 2 ] }"},
    {"y_blanks_in_empty", "[ \t]"},

    {"o_line_feed_inside", "[1,\n2]"},
    {"o_carriage_return_inside", "{\r}"},
    {"o_blank_before", " 1"},
    {"o_blank_behind", "1 "},
    {"o_line_feed_behind", "1\n"},
    {"o_lone_high_surrogate", R"("\ud800")"},
    {"o_lone_low_surrogate", R"("\udc00")"},
    {"o_two_high_surrogates", R"("\ud800\ud800")"},
    {"o_high_surrogate_and_letter", R"("\ud800x")"},

    {"n_nothing", ""},
    {"n_word", "nul"},
    {"n_word_longer", "nulll"},
    {"n_word_large", "True"},
    {"n_not_a_number", "NaN"},
    {"n_infinity", "-Infinity"},
    {"n_plus", "+1"},
    {"n_minus_alone", "-"},
    {"n_two_minuses", "--1"},
    {"n_leading_zero", "01"},
    {"n_minus_leading_zero", "-01"},
    {"n_no_integer", ".5"},
    {"n_no_fraction", "1."},
    {"n_no_fraction_before_exponent", "1.e5"},
    {"n_no_exponent", "1e"},
    {"n_no_exponent_after_sign", "1e+"},
    {"n_fraction_in_exponent", "1e5.5"},
    {"n_hexadecimal", "0x10"},
    {"n_other_digits", "\xD9\xA1"},
    {"n_two_values", "1,2"},
    {"n_open_string", R"("abc)"},
    {"n_quote_alone", R"(")"},
    {"n_single_quotes", "'a'"},
    {"n_escape_at_end", R"("\)"},
    {"n_escape_of_quote_at_end", R"("\")"},
    {"n_unknown_escape", R"("\a")"},
    {"n_unicode_escape_short", R"("\u12")"},
    {"n_unicode_escape_short_at_end", R"("\u)"},
    {"n_unicode_escape_wrong", R"("\u12g4")"},
    {"n_unicode_escape_large_letter", R"("\U00e4")"},
    {"n_high_surrogate_cut", R"("\ud800\u")"},
    {"n_control_character", "\"\x1F\""},
    {"n_line_feed_in_string", "\"\n\""},
    {"n_zero_byte_in_string", "\"\0\""sv},
    {"n_zero_byte_behind", "1\0"sv},
    {"n_utf8_alone", "\"\x80\""},
    {"n_utf8_cut", "\"\xC3\""},
    {"n_utf8_cut_three", "\"\xE2\x82\""},
    {"n_utf8_overlong_two", "\"\xC0\xAF\""},
    {"n_utf8_overlong_three", "\"\xE0\x80\xAF\""},
    {"n_utf8_overlong_four", "\"\xF0\x80\x80\xAF\""},
    {"n_utf8_surrogate", "\"\xED\xA0\x80\""},
    {"n_utf8_above_all", "\"\xF4\x90\x80\x80\""},
    {"n_utf8_five", "\"\xF8\x88\x80\x80\x80\""},
    {"n_byte_order_mark", "\xEF\xBB\xBF{}"},
    {"n_open_object", "{"},
    {"n_open_object_key", R"({"a")"},
    {"n_open_object_colon", R"({"a":)"},
    {"n_open_object_value", R"({"a":1)"},
    {"n_object_comma_at_end", R"({"a":1,})"},
    {"n_object_comma_first", R"({,"a":1})"},
    {"n_object_two_commas", R"({"a":1,,"b":2})"},
    {"n_object_no_colon", R"({"a"1})"},
    {"n_object_two_colons", R"({"a"::1})"},
    {"n_object_no_key", "{:1}"},
    {"n_object_bare_key", "{a:1}"},
    {"n_object_number_key", "{1:1}"},
    {"n_open_list", "["},
    {"n_open_list_value", "[1"},
    {"n_list_comma_at_end", "[1,]"},
    {"n_list_comma_first", "[,1]"},
    {"n_list_no_comma", "[1 2]"},
    {"n_list_closed_as_object", "[1}"},
    {"n_closed_twice", "[]]"},
    {"n_comment", "/**/1"},
    {"n_form_feed", "[\f1]"},
    {"n_no_break_space", "[\xC2\xA0]"},
};

std::string nested(std::size_t depth, const std::string& open, const std::string& inside, char close) {
    std::string text;
    for (std::size_t i = 0; i < depth; ++i) text += open;
    return text + inside + std::string(depth, close);
}

}  // namespace

TEST("values") {
    for (const auto& [name, text] : values)
        if (is_json_value(text) != (name[0] == 'y'))
            CHECK_EQ(name, is_json_value(text) ? "taken" : "refused");
}

TEST("strings are values that begin with a quote, and no other") {
    for (const auto& [name, text] : values) {
        const bool wanted = name[0] == 'y' && text.front() == '"';
        if (is_json_string(text) != wanted) CHECK_EQ(name, is_json_string(text) ? "taken" : "refused");
    }
}

TEST("members are taken with their commas in front, whatever value they have") {
    for (const auto& [name, text] : values) {
        const std::string member = ",\"key\":" + std::string(text);
        // In the middle of a line a blank is nothing.
        const bool wanted = name[0] == 'y' || name == "o_blank_before";
        if (is_json_members(member + ",\"b\":0") != wanted && name != "n_two_values" &&
            name != "o_blank_behind")
            CHECK_EQ(name, wanted ? "refused as a member" : "taken as a member");
    }
    for (const char* good : {"", ",\"a\":1", ",\"a\":1,\"b\":2", ",\"a\":{\"b\":[1]}", ", \"a\" : 1"})
        if (!is_json_members(good)) CHECK_EQ(good, "refused");
    for (const char* bad :
         {"\"a\":1", ",", ",\"a\"", ",\"a\":", ",\"a\":1,", ",,\"a\":1", ",a:1", ",\"a\":1}", ",\"a\":1\n",
          ",\"a\":1}}\n{\"name\":\"x\"", ",1", ",\"a\":1 \"b\":2"})
        if (is_json_members(bad)) CHECK_EQ(bad, "taken");
}

TEST("names") {
    CHECK(is_json_name(R"("name":"forward","cat":"compute")"));
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

TEST("every cut of a text is judged by itself") {
    const std::string text = R"({"key":[1.5e3,"\u00e4\ud83d\ude00",true,null,{"a":-0}],"z":""})";
    REQUIRE(is_json_value(text));
    for (std::size_t length = 0; length < text.size(); ++length)
        CHECK(!is_json_value(std::string_view(text).substr(0, length)));
    for (std::size_t from = 1; from < text.size(); ++from) is_json_value(std::string_view(text).substr(from));
}
