// A recogniser of JSON that builds nothing.
#include "dftrace/text/json_check.hpp"

#include <cstddef>

#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

class Recogniser {
  public:
    explicit Recogniser(std::string_view text, int most_depth = most_json_depth)
        : text_(text), most_depth_(most_depth) {}

    std::size_t at() const noexcept { return at_; }
    bool at_end() const noexcept { return at_ == text_.size(); }
    bool take(char c) noexcept {
        if (at_end() || text_[at_] != c) return false;
        ++at_;
        return true;
    }
    bool take(std::string_view word) noexcept {
        if (text_.substr(at_, word.size()) != word) return false;
        at_ += word.size();
        return true;
    }

    bool value(int depth) noexcept {
        if (depth > most_depth_ || at_end()) return false;
        switch (text_[at_]) {
            case '"': return string();
            case '{': return object(depth);
            case '[': return list(depth);
            case 't': return take("true");
            case 'f': return take("false");
            case 'n': return take("null");
            default: return number();
        }
    }

    bool string() noexcept {
        if (!take('"')) return false;
        while (!at_end()) {
            const auto c = static_cast<unsigned char>(text_[at_]);
            if (c == '"') {
                ++at_;
                return true;
            }
            if (c < 0x20) return false;
            if (c == '\\') {
                if (!escape()) return false;
            } else if (const std::size_t length = utf8_length(text_, at_)) {
                at_ += length;
            } else {
                return false;
            }
        }
        return false;
    }

    bool member(int depth) noexcept {
        blanks();
        if (!string()) return false;
        blanks();
        if (!take(':')) return false;
        blanks();
        return value(depth);
    }

  private:
    // No line breaks, which JSON takes, too: they would end the line that the text becomes part of.
    void blanks() noexcept {
        while (take(' ') || take('\t')) continue;
    }
    bool digit() noexcept {
        if (at_end() || text_[at_] < '0' || text_[at_] > '9') return false;
        ++at_;
        return true;
    }
    bool digits() noexcept {
        if (!digit()) return false;
        while (digit()) continue;
        return true;
    }
    bool number() noexcept {
        take('-');
        if (!take('0') && !digits()) return false;
        if (take('.') && !digits()) return false;
        if (take('e') || take('E')) {
            if (!take('+')) take('-');
            return digits();
        }
        return true;
    }
    // Four hexadecimal digits, or -1.
    int hex4() noexcept {
        int code = 0;
        for (int i = 0; i < 4; ++i, ++at_) {
            const char c = at_end() ? '\0' : text_[at_];
            const char lower = static_cast<char>(c | 0x20);
            if (c >= '0' && c <= '9')
                code = code * 16 + (c - '0');
            else if (lower >= 'a' && lower <= 'f')
                code = code * 16 + (lower - 'a' + 10);
            else
                return -1;
        }
        return code;
    }
    // Half a surrogate pair is grammar, but no character: many readers refuse it.
    bool code_point() noexcept {
        const int code = hex4();
        if (code < 0 || (code >= 0xDC00 && code < 0xE000)) return false;
        if (code < 0xD800 || code >= 0xE000) return true;
        if (!take("\\u")) return false;
        const int low = hex4();
        return low >= 0xDC00 && low < 0xE000;
    }
    bool escape() noexcept {
        ++at_;
        if (take('u')) return code_point();
        constexpr std::string_view letters = "\"\\/bfnrt";
        if (at_end() || letters.find(text_[at_]) == std::string_view::npos) return false;
        ++at_;
        return true;
    }
    bool object(int depth) noexcept {
        take('{');
        blanks();
        if (take('}')) return true;
        do {
            if (!member(depth + 1)) return false;
            blanks();
        } while (take(','));
        return take('}');
    }
    bool list(int depth) noexcept {
        take('[');
        blanks();
        if (take(']')) return true;
        do {
            blanks();
            if (!value(depth + 1)) return false;
            blanks();
        } while (take(','));
        return take(']');
    }

    std::string_view text_;
    int most_depth_;
    std::size_t at_ = 0;
};

}  // namespace

bool is_json_value(std::string_view text, int most_depth) noexcept {
    Recogniser json(text, most_depth);
    return json.value(0) && json.at_end();
}

bool is_json_string(std::string_view text) noexcept {
    Recogniser json(text);
    return json.string() && json.at_end();
}

bool is_json_members(std::string_view text) noexcept {
    Recogniser json(text);
    while (!json.at_end())
        if (!json.take(',') || !json.member(0)) return false;
    return true;
}

bool is_json_line(std::string_view text) noexcept {
    return text.starts_with('{') && text.ends_with('\n') && is_json_value(text.substr(0, text.size() - 1));
}

std::optional<JsonName> parts_of_json_name(std::string_view text) noexcept {
    Recogniser json(text);
    if (!json.take("\"name\":")) return std::nullopt;
    const std::size_t name = json.at();
    if (!json.string()) return std::nullopt;
    const std::size_t name_end = json.at();
    if (!json.take(",\"cat\":")) return std::nullopt;
    const std::size_t category = json.at();
    if (!json.string() || !json.at_end()) return std::nullopt;
    return JsonName{text.substr(name, name_end - name), text.substr(category)};
}

}  // namespace dftrace
