// Texts as JSON strings.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dftrace {

// `text` as a JSON string with its quotes, written so that Perfetto reads it too. Bytes that are
// not UTF-8 become U+FFFD.
void append_json_string(std::string& out, std::string_view text);

// What a JSON string, with its quotes, stands for: of one that `is_json_string` accepts.
std::string text_of_json_string(std::string_view json);

// A code point that is one, as UTF-8.
void append_utf8(std::string& out, unsigned code);

// Length of the valid UTF-8 sequence at `at` (Unicode 15, table 3-7), or 0.
std::size_t utf8_length(std::string_view text, std::size_t at) noexcept;

}  // namespace dftrace
