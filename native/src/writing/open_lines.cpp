// Keeping them by id, and finding them again in a file.
#include "dftrace/writing/open_lines.hpp"

#include <charconv>
#include <utility>

#include "dftrace/text/json_check.hpp"

namespace dftrace {

namespace {

constexpr std::string_view id_key = "{\"id\":";
// No quote inside of a text stands bare: these are members of the line, and of none of its arguments
// that could come before.
constexpr std::string_view tid_key = ",\"tid\":";
constexpr std::string_view open_key = ",\"ph\":\"B\",";

std::uint64_t number_behind(std::string_view text, std::string_view key) noexcept {
    const std::size_t at = text.find(key);
    std::uint64_t number = 0;
    if (at != text.npos) std::from_chars(text.data() + at + key.size(), text.data() + text.size(), number);
    return number;
}

bool is_whole(std::string_view line) {
    return line.starts_with(id_key) && line.ends_with('}') &&
           is_json_members("," + std::string(line.substr(1, line.size() - 2)));
}

}  // namespace

void OpenLines::take_in(std::string_view text) {
    for (std::size_t end; (end = text.find('\n')) != text.npos; text.remove_prefix(end + 1)) {
        const std::string_view line = text.substr(0, end);
        if (is_open_span(line) && is_whole(line))
            told_[number_behind(line, id_key)] = std::string(line) + '\n';
    }
}

OpenLines::Lines OpenLines::take_lost() {
    Lines lost = std::exchange(told_, {});
    for (const auto& [id, line] : seen_) lost.erase(id);
    return lost;
}

std::string OpenLines::tell_seen() {
    told_ = std::exchange(seen_, {});
    std::string text;
    for (const auto& [id, line] : told_) text += line;
    return text;
}

bool is_open_span(std::string_view line) noexcept { return line.find(open_key) != line.npos; }

std::uint32_t track_of(std::string_view line) noexcept {
    return static_cast<std::uint32_t>(number_behind(line, tid_key));
}

std::string on_track(std::string_view line, std::uint32_t track) {
    const std::size_t from = line.find(tid_key);
    if (from == line.npos) return std::string(line);
    const std::size_t to = line.find_first_not_of("0123456789", from + tid_key.size());
    std::string moved(line.substr(0, from + tid_key.size()));
    moved += std::to_string(track);
    return moved.append(line.substr(to));
}

}  // namespace dftrace
