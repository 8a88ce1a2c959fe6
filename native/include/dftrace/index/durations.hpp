// Many durations in little memory, for their percentiles: all of them while they are few, and then how many
// lie in each of 64 equal parts of an octave.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "dftrace/index/budget.hpp"

namespace dftrace {

class Durations {
  public:
    // So many are kept as they are; their percentiles are exact. Those of more are at most 0.78 % off.
    static constexpr std::size_t most_exact = 128;

    // `ns` is not negative.
    void add(std::int64_t ns, Budget& budget) {
        if (pages_) [[likely]] {
            const unsigned at = bucket(static_cast<std::uint64_t>(ns));
            if (Page* const page = (*pages_)[at >> bits].get()) [[likely]] {
                ++(*page)[at & ((1u << bits) - 1)];
                ++size_;
                return;
            }
        }
        add_first(ns, budget);
    }
    void add(const Durations& others, Budget& budget);
    std::uint64_t size() const noexcept { return size_; }
    void clear(Budget& budget) noexcept;
    // As `clear`, but keeps the room of few.
    void forget(Budget& budget) noexcept;
    // Appends `,"exact":[...]`, or `,"buckets":[...]`: how many empty buckets lie in front of each that is
    // not, and how many durations are in it.
    void tell(std::string& json) const;
    // Appends the same numbers; true for the durations themselves.
    bool tell(std::vector<std::int64_t>& numbers) const;
    // Takes in what was told, where nothing was before; false, and it is of no use, where that cannot be.
    bool take_in(bool exact, const std::vector<std::int64_t>& told, Budget& budget);
    // Whether these can be the least and the greatest of them, of which there are some.
    bool reach(std::int64_t least, std::int64_t greatest) const noexcept;
    // Between the two that are nearest to that share, as numpy has it; `least` and `greatest` are theirs.
    double quantile(double share, std::int64_t least, std::int64_t greatest) const;

  private:
    static constexpr unsigned bits = 6;
    static constexpr std::size_t pages = 64 - bits;
    using Page = std::array<std::uint64_t, 1u << bits>;

    // Exact below 128 ns; above, the first bit and the six behind it.
    static unsigned bucket(std::uint64_t ns) noexcept {
        const unsigned octave = static_cast<unsigned>(std::bit_width(ns | (1u << bits))) - 1;
        return ((octave - bits) << bits) + static_cast<unsigned>(ns >> (octave - bits));
    }
    // One of the exact ones, or of a page that is not there yet.
    void add_first(std::int64_t ns, Budget& budget);
    static double middle(unsigned bucket) noexcept;
    void count(unsigned bucket, std::uint64_t times, Budget& budget);
    template <typename Put>
    void tell_each(Put put) const;
    void give_up_exactness(Budget& budget);
    // The `rank`-th from the least, from 0.
    double at_rank(std::uint64_t rank, std::int64_t least, std::int64_t greatest) const noexcept;

    std::uint64_t size_ = 0;
    std::vector<std::int64_t> exact_;
    std::unique_ptr<std::array<std::unique_ptr<Page>, pages>> pages_;
};

}  // namespace dftrace
