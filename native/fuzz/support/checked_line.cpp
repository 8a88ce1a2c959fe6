// Reading lines with the strict reader of the tests.
#include "checked_line.hpp"

#include <cstdio>
#include <cstdlib>

#include "json_reader.hpp"

void fail(const char* what, std::string_view where) {
    std::fprintf(stderr, "%s: %.*s\n", what, static_cast<int>(where.size()), where.data());
    std::abort();
}

void require_lines(std::string_view text) {
    while (!text.empty()) {
        const auto end = text.find('\n');
        if (end == std::string_view::npos) fail("a line without an end", text);
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end + 1);
        if (!is_utf8(line)) fail("not UTF-8", line);
        try {
            json_members(line);
        } catch (const BadJson& error) {
            if (std::string_view(error.what()).find("key stands twice") != 0) fail(error.what(), line);
        }
    }
}
