// Leaving out what lies plainly outside of a stretch of time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "dftrace/reading/traces/line_walk.hpp"

namespace dftrace {

// In ns as the lines have them.
struct TimeRange {
    std::int64_t start = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
};

class PassingWindow {
  public:
    // Of the lines that are plainly right those are left out that end before `first` or begin behind `last`,
    // in ns as the lines have them; but none that begins before `least`.
    PassingWindow(std::int64_t first, std::int64_t last, std::int64_t least) noexcept
        : first_(first), last_(last), least_(least) {}

    LineWalk& walk() noexcept { return walk_; }
    // To the next line that is not left out; false behind the last one of the block.
    bool step();

    // From the first beginning to the last end of what was left out.
    const std::optional<TimeRange>& left_out() const noexcept { return left_out_; }

  private:
    bool is_outside();

    std::int64_t first_, last_, least_;
    LineWalk walk_;
    std::optional<TimeRange> left_out_;
};

}  // namespace dftrace
