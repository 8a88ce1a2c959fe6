// Places among moments that rise, as NumPy's searchsorted finds them; in less time where those asked for
// rise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace dftrace {

// Of each of those asked for how many moments are less, or with `right` not greater.
void find_places(std::span<const std::int64_t> moments, std::span<const std::int64_t> asked, bool right,
                 std::int64_t* places);

// Of each stretch the longest step between neighbouring moments, the last of several, by the place of its
// beginning; `first` is the place where the stretch begins, `last` where it ends. Steps that end at a moment
// that is 0 in `ends` do not count, where there are any such. -1 where there is none.
void find_longest(std::span<const std::int64_t> moments, std::span<const std::int64_t> first,
                  std::span<const std::int64_t> last, std::span<const std::uint8_t> ends,
                  std::int64_t* longest);

}  // namespace dftrace
