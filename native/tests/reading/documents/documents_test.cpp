// Documents with events, in any layout and in pieces of any size.
#include "dftrace/reading/documents/documents.hpp"

#include <string>
#include <string_view>

#include "check.hpp"

using namespace dftrace;

namespace {

constexpr std::size_t most_bytes = 1 << 20;

// All lines of the first document of a text that comes in pieces of so many bytes.
std::string lines_of(Documents& documents, std::string_view text, std::size_t piece) {
    std::string lines;
    for (; !documents.over(); text.remove_prefix(std::min(piece, text.size())))
        documents.add(text.substr(0, piece), lines);
    return lines;
}

constexpr std::string_view object = R"({"schemaVersion": 1, "skipped": [{"]": "}\""}, [], 7],
 "traceEvents": [
  {"ph": "X", "args": {"a": [1, {"b" : "\u00e9\/\"\u0001"}]}, "name": "a", "pid": "GPU 0", "ts": 1.250},
  7, {"name": "b", "name": "c", "pid": 4, "dur": 1e999, "nan": NaN, "args": null} ],
 "baseTimeNanoseconds": 1700000000000000000, "distributedInfo": {"rank": 3}})";
constexpr std::string_view expected =
    R"({"name":"process_name","pid":4194305,"tid":4194305,"ph":"M","args":{"name":"GPU 0"}})"
    "\n"
    R"({"name":"a","pid":4194305,"ts":1.250,"ph":"X","args":{"a":[1,{"b":"é/\"\u0001"}]}})"
    "\n7\n"
    R"({"name":"c","pid":4,"dur":"1e999","nan":"NaN"})"
    "\n";

}  // namespace

TEST("a document is the same lines, wherever its text is cut") {
    for (std::size_t piece = 1; piece <= object.size(); piece += piece < 40 ? 1 : 37) {
        Documents documents(true, most_bytes);
        CHECK_EQ(lines_of(documents, object, piece), expected);
        CHECK(!documents.document().tear);
        CHECK_EQ(documents.document().entries, 3u);
        CHECK_EQ(documents.document().facts.at("\"distributedInfo\""), R"({"rank":3})");
        CHECK_EQ(documents.place(), object.size());
        std::string none;
        documents.add("", none);
        CHECK(documents.goes_on() == std::optional(false));
    }
}

TEST("a text that ends anywhere ends too early, and is not broken") {
    for (std::size_t bytes = 0; bytes < object.size(); ++bytes) {
        Documents documents(true, most_bytes);
        const std::string lines = lines_of(documents, object.substr(0, bytes), 5);
        REQUIRE(documents.document().tear);
        CHECK(!documents.document().damaged);
        CHECK_EQ(expected.substr(0, lines.size()), lines);
    }
}

TEST("what is no JSON is told with its place") {
    constexpr std::string_view good = R"([{"name":"good"},)";
    for (const std::string_view bad :
         {"01]", "[1,]", "{\"a\":1,}", "'a'", "+1", "\"\\x\"", "1.]", "tru,", "{}}"}) {
        Documents documents(true, most_bytes);
        CHECK_EQ(lines_of(documents, std::string(good) + std::string(bad), 3).substr(0, 16),
                 "{\"name\":\"good\"}\n");
        REQUIRE(documents.document().tear);
        CHECK_EQ(documents.document().tear, std::string_view("broken JSON"));
    }
    const std::string deep = std::string(good) + std::string(100'000, '[');
    Documents documents(true, most_bytes);
    lines_of(documents, deep, deep.size());
    CHECK_EQ(documents.document().tear, std::string_view("JSON that is nested too deeply"));
}

TEST("times that cannot be are left out, and lengths cut") {
    std::string text = "[";
    for (int i = 0; i < 100; ++i)
        text += R"({"ph":"X","cat":"kernel","pid":1,"tid":7,"ts":)" + std::to_string(1'000'000 + 100 * i) +
                R"(,"dur":)" + (i == 50 ? "99999999999" : "90") + R"(,"args":{"stream":7}},)";
    text += R"({"ph":"X","cat":"kernel","ts":0,"dur":0}])";
    Documents documents(true, most_bytes);
    const std::string lines = lines_of(documents, text, 1000);
    const Mending* const mending = documents.mending();
    REQUIRE(mending);
    CHECK_EQ(mending->left_out, 1u);
    REQUIRE_EQ(mending->durations.size(), 1u);
    CHECK_EQ(mending->durations.at(50), 100'000);
    std::string mended;
    documents.mend("[\n" + lines + "]\n", mended);
    CHECK(mended.find("99999999999") == mended.npos);
    CHECK(mended.find("\"dur\":100.000,") != mended.npos);
    CHECK(mended.find("\"ts\":0") == mended.npos);
}
