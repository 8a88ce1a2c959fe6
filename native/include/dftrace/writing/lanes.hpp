// Tracks for spans that do not nest with those of their thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dftrace {

// Distributes intervals over lanes so that on each lane any two nest or do not touch. Perfetto
// drops a slice that overlaps another on its track without a word.
class Lanes {
  public:
    // Without `nest`, no two intervals of a lane may touch at all: what lies inside another by chance
    // would be shown as its child.
    explicit Lanes(bool nest) : nest_(nest) {}
    // Number of the lane that takes [start, end]; a new one if none does.
    std::size_t place(std::uint64_t start, std::uint64_t end);
    std::size_t size() const noexcept { return lanes_.size(); }

  private:
    struct Interval {
        std::uint64_t start;
        std::uint64_t end;
    };
    struct Lane {
        std::vector<Interval> outermost;  // disjoint, rising
        std::uint64_t closed_before = 0;  // what lies before was forgotten: nothing goes there
    };
    bool fits(Lane& lane, Interval interval) const;
    bool nest_;
    std::vector<Lane> lanes_;
};

}  // namespace dftrace
