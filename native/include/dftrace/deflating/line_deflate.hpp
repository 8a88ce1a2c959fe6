// Deflate for lines that resemble those before them: repetitions are looked for where fields begin, and in
// two lines only.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace dftrace {

class LineDeflate {
  public:
    LineDeflate();
    ~LineDeflate();
    // Writes `text` at `out` as one stream of deflate (RFC 1951). How many bytes that took; 0 where it takes
    // more than `room`. Does not remember what it compressed before.
    std::size_t compress(std::string_view text, char* out, std::size_t room) noexcept;
    // How many letters that took as they were: of words that are not found again.
    std::size_t letters_told() const noexcept;
    // About which share of that would be saved where repetitions were looked for at all distances; 0 in so
    // little text that nothing is known.
    double share_missed() const noexcept;
    // How many bytes one of the text took in that part of it that took most; 0 where no part is 64 KiB.
    double densest() const noexcept;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace dftrace
