// Which span lies in which on its track, for spans in the order of their ends, as they mostly are written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <vector>

#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

class SpanTree {
  public:
    // Four bytes of each span are kept for its parent where that is asked for.
    explicit SpanTree(bool keeps_parents) : keeps_(keeps_parents) {}

    // Takes in the finished spans of a block and appends what of each one's time no others take that lie
    // directly inside of it. False where this cannot be told from the order: a span came too late, cuts
    // another one, or has the same times as one that should lie around it. Nothing holds any more then.
    bool add(const Rows& rows, std::vector<std::int64_t>& own);

    // Of each span, in the order in which they came, the one around it, -1 where there is none.
    const std::vector<std::int32_t>& parents() const noexcept { return parents_; }

  private:
    // One that nothing encloses yet.
    struct Open {
        std::int64_t start, end;
        std::int32_t span;
        bool ends_empty;  // it or one in it has no length and stands at its end
    };
    struct Track {
        std::int64_t end = std::numeric_limits<std::int64_t>::min();
        std::int64_t last_id = 0;  // of the span that came last
        std::deque<Open> open;     // begin and end later than those before them
    };
    bool enclose(Track& track, std::int64_t start, std::int64_t end, std::int64_t id, std::int64_t& own);

    const bool keeps_;
    std::vector<Track> tracks_;
    std::vector<std::int32_t> parents_;
};

}  // namespace dftrace
