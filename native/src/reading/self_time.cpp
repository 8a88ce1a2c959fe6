// A sweep over the spans in the order in which they began.
#include "dftrace/reading/self_time.hpp"

#include <algorithm>

namespace dftrace {

std::unordered_map<std::uint32_t, std::uint64_t> self_times(std::vector<CoveringSpan> spans,
                                                            std::uint64_t from, std::uint64_t to) {
    // Of two that began together the shorter one is the inner one.
    std::sort(spans.begin(), spans.end(), [](const CoveringSpan& a, const CoveringSpan& b) {
        return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    std::unordered_map<std::uint32_t, std::uint64_t> found;
    // Begun and perhaps ended, the latest last: one that has ended is taken off when it comes up.
    std::vector<CoveringSpan> begun;
    std::uint64_t now = from;
    const auto go_on_to = [&](std::uint64_t until) {
        while (now < until && !begun.empty()) {
            const CoveringSpan& latest = begun.back();
            if (latest.end <= now) {
                begun.pop_back();
                continue;
            }
            const std::uint64_t end = std::min(latest.end, until);
            found[latest.key] += end - now;
            now = end;
        }
        now = std::max(now, until);
    };
    for (const CoveringSpan& span : spans) {
        if (span.start >= to || span.end <= from || span.end <= span.start) continue;
        go_on_to(std::max(span.start, from));
        begun.push_back(span);
    }
    go_on_to(std::max(from, to));
    return found;
}

}  // namespace dftrace
