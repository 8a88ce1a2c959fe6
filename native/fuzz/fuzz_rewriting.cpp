// Lines of any kind with another process and time: each stays one line of JSON with the same arguments, and
// is what the general reader of JSON makes of it.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checked_line.hpp"
#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/reading/traces/rewriting.hpp"

using namespace dftrace;

namespace {

constexpr std::int64_t new_pid = 4'194'305;

void put(PlainText& text, std::string_view lines) {
    std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
    text.close(lines.size());
}

Rewritten how_of(std::uint8_t kind) {
    Rewritten how;
    how.pid = 100;
    how.new_pid = kind & 1 ? new_pid : 100;
    std::vector<ClockPiece> pieces;
    if (kind & 2) pieces.push_back({0, 1'234'567, kind & 4 ? 1e-4 : 0.0, 5'000});
    if (kind & 8) pieces.push_back({30'000, -7'000, 0, 0});
    how.clock = ShownClock(std::move(pieces));
    if (kind & 16) how.window = Rewritten::Window{0, 40'000};
    if (kind & 32) how.kept = std::vector<Label>{{"compute", ""}, {"", "forward"}};
    return how;
}

// The line that `line` was made of, by the reader that knows no layout.
void require_same(std::string_view before, std::string_view after, const ShownClock& clock, bool renumbers) {
    const GeneralLine was = read_general_line(before), is = read_general_line(after);
    const auto same = [&](const char* what, bool well) {
        if (!well) fail(what, after);
    };
    same("another name", was.name == is.name && was.category == is.category && was.ph == is.ph);
    same("other arguments", was.args == is.args && was.id == is.id);
    const bool moves = renumbers && was.pid == 100;
    same("another process", is.pid == (moves ? new_pid : was.pid));
    same("another thread", is.tid == (moves && was.tid == was.pid ? new_pid : was.tid));
    same("another start", is.start == clock.of(was.start));
    if (was.ph == "X") same("another end", is.start + is.duration == clock.end_of(was.start, was.duration));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    if (bytes < 2) return 0;
    const std::uint8_t kind = data[0];
    std::string text(reinterpret_cast<const char*>(data + 1), bytes - 1);
    if (text.back() != '\n') text += '\n';
    Rewriting rewriting(how_of(kind));
    put(rewriting.walk().next_text(), text);
    rewriting.walk().begin();
    std::vector<std::string> all;
    for (std::size_t from = 0; from < text.size();) {
        const std::size_t end = text.find('\n', from);
        all.push_back(text.substr(from, end - from));
        from = end + 1;
    }
    std::vector<std::uint64_t> given;
    while (rewriting.step()) given.push_back(rewriting.walk().lines());
    const std::string written(rewriting.take({}, true));
    std::size_t line = 0, next_given = 0;
    for (std::size_t from = 0; from < written.size();) {
        const std::size_t end = written.find('\n', from);
        const std::string_view after(written.data() + from, end - from);
        from = end + 1;
        if (kind & (16 | 32)) {  // some may be left out
            require_lines(std::string(after) + '\n');
            continue;
        }
        while (next_given < given.size() && given[next_given] == line + 1) ++line, ++next_given;
        if (line >= all.size()) fail("more lines than there were", after);
        require_same(all[line++], after, rewriting.clock(), kind & 1);
    }
    return 0;
}
