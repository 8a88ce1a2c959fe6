// Walking over JSON without reading its values.
#include "dftrace/text/json_parts.hpp"

#include <algorithm>
#include <cstddef>

namespace dftrace {

namespace {

constexpr std::string_view blanks = " \t\r\n";

std::string_view without_blanks(std::string_view text) noexcept {
    text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
    return text.substr(0, text.find_last_not_of(blanks) + 1);
}

// Where a comma, or a bracket that closes, stands outside of all that was begun here.
std::size_t end_of_part(std::string_view text) noexcept {
    int depth = 0;
    bool quoted = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char letter = text[at];
        if (quoted && letter == '\\')
            ++at;
        else if (letter == '"')
            quoted = !quoted;
        else if (quoted)
            continue;
        else if (letter == '[' || letter == '{')
            ++depth;
        else if (letter == ']' || letter == '}')
            --depth;
        if (!quoted && (depth < 0 || (depth == 0 && letter == ','))) return at;
    }
    return text.size();
}

}  // namespace

std::string_view next_json_part(std::string_view& rest) noexcept {
    const std::size_t end = end_of_part(rest);
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return without_blanks(part);
}

std::string_view json_member(std::string_view members, std::string_view key) noexcept {
    members.remove_prefix(std::min<std::size_t>(1, members.size()));
    while (!members.empty()) {
        std::string_view member = next_json_part(members);
        if (!member.starts_with('"') || member.substr(1, key.size()) != key) continue;
        member.remove_prefix(1 + key.size());
        if (!member.starts_with('"')) continue;
        member = without_blanks(member.substr(1));
        if (member.starts_with(':')) return without_blanks(member.substr(1));
    }
    return {};
}

}  // namespace dftrace
