// Whose time it was: a span's own share of a stretch of time, without that of the spans inside of it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace dftrace {

struct CoveringSpan {
    std::uint64_t start;
    std::uint64_t end;
    std::uint32_t key;
};

// The time between `from` and `to` that falls to each key. An instant belongs to one span: of those that
// cover it to the one that began last, which of nested spans is the innermost. Where no span is, it
// belongs to nobody.
std::unordered_map<std::uint32_t, std::uint64_t> self_times(std::vector<CoveringSpan> spans,
                                                            std::uint64_t from, std::uint64_t to);

}  // namespace dftrace
