// A strict JSON reader (RFC 8259) that shares nothing with the code it checks.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct BadJson : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct JsonMember {
    std::string_view key;    // raw, without the quotes
    std::string_view value;  // raw JSON
};

// The members of the object that `text` is, from its first to its last byte. Everything inside is
// checked: grammar, UTF-8, numbers, no key twice. Throws BadJson.
std::vector<JsonMember> json_members(std::string_view text);

// The text that a JSON string with its quotes stands for; throws BadJson.
std::string json_text(std::string_view quoted);

// True if `text` is well-formed UTF-8 (Unicode 15, chapter 3.9).
bool is_utf8(std::string_view text);
