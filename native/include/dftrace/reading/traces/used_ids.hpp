// Which numbers of events a process has used, to tell those that are used twice.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

namespace dftrace {

class UsedIds {
  public:
    // Whether it was there before. Threads take their numbers in blocks, so that few pages are of use at a
    // time; of numbers in more pages than are kept nothing is known.
    bool again(std::uint64_t id) {
        const std::uint64_t number = id / ids_of_page;
        if (!last_ || number != last_number_) {
            if (pages_.size() >= most_pages && !pages_.contains(number)) {
                full_ = true;
                return false;
            }
            last_ = &pages_[number];
            last_number_ = number;
        }
        const std::size_t at = id % ids_of_page;
        const bool before = last_->test(at);
        last_->set(at);
        return before;
    }
    // What comes are the numbers of another process.
    void forget() noexcept {
        pages_.clear();
        last_ = nullptr;
    }
    // Some were not looked at.
    bool full() const noexcept { return full_; }

  private:
    static constexpr std::size_t ids_of_page = 4096;
    static constexpr std::size_t most_pages = 1u << 16;  // of 512 bytes
    using Page = std::bitset<ids_of_page>;
    std::unordered_map<std::uint64_t, Page> pages_;
    Page* last_ = nullptr;
    std::uint64_t last_number_ = 0;
    bool full_ = false;
};

}  // namespace dftrace
