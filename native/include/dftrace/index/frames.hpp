// Frames: spans around what a thread does, which begin in one call and end in another, and so lie on a track
// that is no thread's. They have no time of their own.
#pragma once

#include <cstdint>
#include <string_view>

#include "dftrace/index/covered_time.hpp"

namespace dftrace {

// From this number on a track is no thread's.
inline constexpr std::int64_t first_lane = 0x40000000;

constexpr bool is_outermost(std::uint64_t parent) noexcept { return parent == 0 || parent == no_parent; }

// What an outermost span of such a track is called that is a frame if nothing lies inside of it there.
// `analysis/tracks.py` says the same.
constexpr bool is_frame_name(std::string_view category, std::string_view name) noexcept {
    return category == "pipeline" && (name == "step" || name == "epoch" || name == "evaluate");
}

}  // namespace dftrace
