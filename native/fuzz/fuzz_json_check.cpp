// The recogniser of JSON against the strict reader of the tests, which shares nothing with it.
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "checked_line.hpp"
#include "dftrace/text/json_check.hpp"
#include "json_reader.hpp"

using namespace dftrace;

namespace {

enum class Verdict { good, bad, unknown };

// `text` as the one value of an object, by the other reader.
Verdict value_by_reader(std::string_view text) {
    try {
        const std::string object = "{\"k\":" + std::string(text) + "}";
        const auto members = json_members(object);
        return members.size() == 1 && members[0].value == text ? Verdict::good : Verdict::bad;
    } catch (const BadJson& error) {
        // A key twice is grammar all the same, and so may be what follows.
        return std::string_view(error.what()).find("key stands twice") == 0 ? Verdict::unknown : Verdict::bad;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    const std::string_view text(reinterpret_cast<const char*>(data), bytes);
    const bool taken = is_json_value(text);
    if (is_json_string(text) != (taken && text.front() == '"')) fail("a string is a value in quotes", text);
    // Deep nesting is refused by the one, and followed by the other as far as its stack goes.
    if (std::count_if(text.begin(), text.end(), [](char c) { return c == '[' || c == '{'; }) > 50) return 0;
    // Line breaks and blanks around a value are JSON, and no part of a line.
    const bool one_line = text.find_first_of("\r\n") == std::string_view::npos;
    const Verdict verdict = value_by_reader(text);
    if (taken && verdict == Verdict::bad) fail("taken, and no JSON", text);
    if (!taken && one_line && verdict == Verdict::good) fail("refused, and JSON", text);
    if (is_json_members(text)) require_lines("{\"k\":0" + std::string(text) + "}\n");
    if (is_json_name(text)) require_lines("{" + std::string(text) + "}\n");
    const std::string member = ",\"m\":" + std::string(text);
    if (taken != is_json_members(member) && !text.empty() &&
        text.find_first_of(" \t,") == std::string_view::npos)
        fail("a value makes a member", text);
    return 0;
}
