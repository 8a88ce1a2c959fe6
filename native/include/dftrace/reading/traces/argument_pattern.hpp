// Arguments that come again with other numbers, as those of events of one name do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "dftrace/text/digits.hpp"

namespace dftrace {

class ArgumentPattern {
  public:
    static constexpr std::size_t most_bytes = 240, most_numbers = 24;

    // Passes over a text that is the same but for its numbers. Eight bytes behind it can be read.
    // `number(at, which)` passes over each, and returns false where there is none.
    template <typename Number>
    bool pass(const char*& at, Number number) noexcept(noexcept(number(at, 0u))) {
        const char *here = at, *text = texts_.data();
        for (std::size_t which = 0; known_; ++which) {
            if (!same_bytes(here, text, bytes_[which])) return false;
            here += bytes_[which];
            text += bytes_[which];
            if (which == numbers_) {
                at = here;
                misses_ = 0;
                return true;
            }
            if (!number(here, which)) return false;
        }
        return false;
    }

    // Takes a text that was not passed over: JSON, or members of an object. Of texts that come by turns one
    // stays. Returns whether it is known now; one that is long, or has many numbers, never is.
    bool learn(std::string_view text) noexcept;

    // Of the text that is known; in order.
    std::size_t numbers() const noexcept { return numbers_; }

  private:
    static constexpr unsigned most_misses = 4;
    bool known_ = false;
    unsigned misses_ = 0;
    std::size_t numbers_ = 0;
    // What stands before each number and behind the last, one behind the other; and how long each is.
    std::array<std::uint8_t, most_numbers + 1> bytes_{};
    std::array<char, most_bytes> texts_{};
};

}  // namespace dftrace
