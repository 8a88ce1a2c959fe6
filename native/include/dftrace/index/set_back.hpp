// Clocks that were set back while a program recorded: by lines whose times go back by hours.
#pragma once

#include <cstdint>
#include <vector>

#include "dftrace/index/covered_time.hpp"

namespace dftrace {

struct SetBack {
    std::int64_t ns = 0;       // by how much, at most
    std::uint64_t places = 0;  // how often, on the track on which that was most often
};

// Lines come in the order of the ends of spans, or of their beginnings. In either, a span does not end before
// one has begun that stands before it on its track. Where many end an hour before that, the clock was set.
// Tracks without any order tell nothing, and times that cannot be are left out.
SetBack set_back(const std::vector<CoveredTime::Span>& spans_of_lines);

}  // namespace dftrace
