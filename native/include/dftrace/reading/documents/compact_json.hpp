// JSON in any layout and dialect of Python's, written again as one line of RFC 8259.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace dftrace {

// How a value was read: it ends within the text, the text ends within it, or it is none that is taken.
enum class Read { whole, cut, broken, too_deep, too_many_digits };

// Reads values of a text and appends them to `out` without blanks. Texts may hold control characters and
// letters that are no UTF-8 (U+FFFD then); NaN, Infinity and numbers beyond all become texts.
class CompactJson {
  public:
    // `ends`: nothing comes behind the text, so that a number at its end is whole.
    CompactJson(std::string_view text, std::size_t at, bool ends, std::string& out) noexcept
        : text_(text), at_(at), ends_(ends), out_(out) {}

    std::size_t at() const noexcept { return at_; }
    Read value(int depth = 0);

    // An object, which begins here. `take(key, value, end)` gets places in `out`: where each member's key
    // and value begin, and where that ends.
    template <typename Take>
    Read object(int depth, Take take) {
        begin('{');
        if (ended('}')) return Read::whole;
        for (;;) {
            if (at_end()) return Read::cut;
            if (text_[at_] != '"') return Read::broken;
            const std::size_t key = out_.size();
            if (const Read read = string(); read != Read::whole) return read;
            if (const Read read = mark(':'); read != Read::whole) return read;
            const std::size_t from = out_.size();
            if (const Read read = value(depth + 1); read != Read::whole) return read;
            take(key, from, out_.size());
            if (ended('}')) return Read::whole;
            if (const Read read = mark(','); read != Read::whole) return read;
        }
    }

  private:
    bool at_end() const noexcept { return at_ >= text_.size(); }
    void blanks() noexcept;
    void begin(char bracket);
    bool ended(char bracket);
    Read mark(char c);
    Read list(int depth);
    Read string();
    Read escape(std::size_t& at);
    Read number();
    Read word(std::string_view word, std::string_view written);
    void put_code(unsigned code);

    std::string_view text_;
    std::size_t at_;
    bool ends_;
    std::string& out_;
};

}  // namespace dftrace
