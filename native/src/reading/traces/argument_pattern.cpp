// Where the numbers of arguments stand.
#include "dftrace/reading/traces/argument_pattern.hpp"

#include <algorithm>

namespace dftrace {

bool ArgumentPattern::learn(std::string_view text) noexcept {
    if (known_ && ++misses_ < most_misses) return false;
    known_ = false;
    misses_ = numbers_ = 0;
    if (text.size() > most_bytes) return false;
    std::size_t behind = 0, before = 0;
    bool in_text = false;
    for (std::size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (in_text && c == '\\') {
            texts_[behind++] = c;
            if (++at == text.size()) return false;
        } else if (c == '"') {
            in_text = !in_text;
        } else if (!in_text && (c == '-' || static_cast<unsigned>(c - '0') <= 9)) {
            if (numbers_ == most_numbers) return false;
            bytes_[numbers_++] = static_cast<std::uint8_t>(behind - before);
            before = behind;
            at = std::min(text.find_first_not_of("0123456789.-+eE", at), text.size()) - 1;
            continue;
        }
        texts_[behind++] = text[at];
    }
    bytes_[numbers_] = static_cast<std::uint8_t>(behind - before);
    return known_ = !in_text;
}

}  // namespace dftrace
