// Going through the members of an object that is known to be JSON.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace dftrace {

class JsonWalk {
  public:
    explicit JsonWalk(std::string_view text) noexcept : text_(text) {}

    // Calls `take(key, value)` for the members of the object that the text is, keys as they are written.
    template <typename Take>
    void members(Take take) {
        ++at_;
        for (;;) {
            skip_blanks();
            if (at_ >= text_.size() || text_[at_] == '}') return;
            if (text_[at_] == ',') {
                ++at_;
                continue;
            }
            const std::string_view key = value();
            skip_blanks();
            ++at_;  // the colon
            skip_blanks();
            take(key, value());
        }
    }

  private:
    static bool is_blank(char c) noexcept { return c == ' ' || c == '\t' || c == '\r'; }
    void skip_blanks() noexcept {
        while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
    }
    std::string_view value() noexcept {
        const std::size_t from = at_;
        std::size_t depth = 0;
        while (at_ < text_.size()) {
            const char c = text_[at_];
            if (c == '"') {
                skip_string();
                if (depth == 0) break;
                continue;
            }
            if (c == '{' || c == '[') ++depth;
            if (c == '}' || c == ']') {
                if (depth == 0) break;  // the end of a number that is the last member
                ++at_;
                if (--depth == 0) break;
                continue;
            }
            if (depth == 0 && (c == ',' || c == ':' || is_blank(c))) break;
            ++at_;
        }
        return text_.substr(from, at_ - from);
    }
    void skip_string() noexcept {
        for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_)
            if (text_[at_] == '\\') ++at_;
        at_ = std::min(at_ + 1, text_.size());
    }

    std::string_view text_;
    std::size_t at_ = 0;
};

}  // namespace dftrace
