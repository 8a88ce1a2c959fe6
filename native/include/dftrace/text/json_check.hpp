// Telling whether a text that was found somewhere is JSON (RFC 8259), before it becomes part of a line.
#pragma once

#include <optional>
#include <string_view>

namespace dftrace {

// Deeper than any writer of ours goes.
inline constexpr int most_json_depth = 64;
// One value and nothing else. What is nested deeper than `most_depth` is refused.
bool is_json_value(std::string_view text, int most_depth = most_json_depth) noexcept;
bool is_json_string(std::string_view text) noexcept;
// Members of an object, each with a comma in front: `,"epoch":1,"step":7`; empty is none.
bool is_json_members(std::string_view text) noexcept;
// An object, and the end of its line.
bool is_json_line(std::string_view text) noexcept;
// The parts of a name as it is stored, `"name":"forward","cat":"compute"`: two JSON strings, with their
// quotes. Nothing for any other text.
struct JsonName {
    std::string_view name;
    std::string_view category;
};
std::optional<JsonName> parts_of_json_name(std::string_view text) noexcept;
inline bool is_json_name(std::string_view text) noexcept { return parts_of_json_name(text).has_value(); }

}  // namespace dftrace
