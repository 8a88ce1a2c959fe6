// One pass over the spans by their start, with a stack of those that are open.
#include "dftrace/reading/traces/thread_time.hpp"

#include <algorithm>
#include <limits>

#include "dftrace/reading/traces/moments.hpp"

namespace dftrace {

namespace {

struct Open {
    std::int64_t end;
    std::uint8_t part;
    std::int32_t owner;
};

// The pieces that were given so far, and the spans that are open now.
struct Walk {
    std::uint8_t none;
    ThreadPieces found{};
    std::vector<Open> open{};
    std::int64_t now = 0;

    // Gives the time until then to the innermost span.
    void give(std::int64_t until) {
        if (until <= now) return;
        if (!open.empty() && open.back().part != none) {
            const auto& [end, part, owner] = open.back();
            // What goes on is one piece, whatever began and ended within it.
            if (!found.ends.empty() && found.ends.back() == now && found.parts.back() == part &&
                found.owners.back() == owner) {
                found.ends.back() = until;
            } else {
                found.starts.push_back(now);
                found.ends.push_back(until);
                found.parts.push_back(part);
                found.owners.push_back(owner);
            }
        }
        now = until;
    }
};

}  // namespace

ThreadPieces thread_pieces(const ThreadSpans& spans, std::span<const std::uint8_t> counts,
                           const PartTable& table, std::int64_t near) {
    Walk walk{table.none()};
    auto& open = walk.open;
    for (std::size_t row = 0; row < spans.starts.size(); ++row) {
        if (!counts[row]) continue;
        const std::int64_t start = spans.starts[row], end = spans.ends[row];
        while (!open.empty() && (open.back().end <= start + near || end > open.back().end + near)) {
            walk.give(std::min(open.back().end, start));
            open.pop_back();
        }
        walk.give(start);
        const std::uint8_t role = spans.roles[row];
        const std::uint8_t part = table.part(open.empty() ? table.none() : open.back().part, role);
        // A span that only holds others leaves the time to the one around it.
        const bool named = part == table.other_part && role == table.other_role;
        const bool inherits = !open.empty() && open.back().part == part && !named;
        open.push_back({open.empty() ? end : std::min(end, open.back().end), part,
                        inherits ? open.back().owner : static_cast<std::int32_t>(row)});
    }
    while (!open.empty()) {
        walk.give(open.back().end);
        open.pop_back();
    }
    return std::move(walk.found);
}

OutermostWork outermost_work(const ThreadSpans& spans, std::span<const Work> of_roles,
                             const PartTable& table) {
    constexpr std::int64_t never = std::numeric_limits<std::int64_t>::min();
    const std::size_t count = spans.starts.size();
    const auto kind = [&](std::size_t row) {
        return spans.ends[row] > spans.starts[row] ? of_roles[spans.roles[row]] : Work::none;
    };
    // Of work that lies in none: other work may begin with it, and stand before it.
    std::vector<std::int64_t> begins, ends;
    std::int64_t reach = -1;
    for (std::size_t row = 0; row < count; ++row) {
        if (kind(row) != Work::work) continue;
        if (spans.starts[row] >= reach) {
            begins.push_back(spans.starts[row]);
            ends.push_back(spans.ends[row]);
        }
        reach = std::max(reach, spans.ends[row]);
    }
    OutermostWork found;
    std::vector<std::int64_t> inner;
    std::int64_t outer = -1;
    std::uint8_t part = 0;
    bool is_mixed = false;
    const auto put = [&] {
        if (outer < 0) return;
        if (is_mixed) {
            found.mixed.push_back(outer);
            found.mixed.insert(found.mixed.end(), inner.begin(), inner.end());
        } else {
            found.whole.push_back(outer);
        }
        inner.clear();
        is_mixed = false;
    };
    reach = -1;
    std::size_t behind = 0;
    for (std::size_t row = 0; row < count; ++row) {
        const Work what = kind(row);
        if (what == Work::none) continue;
        const std::int64_t start = spans.starts[row];
        while (behind < begins.size() && begins[behind] <= start) ++behind;
        if (what == Work::other && (behind ? ends[behind - 1] : never) > start) continue;
        const std::uint8_t role = spans.roles[row];
        if (start >= reach) {
            put();
            outer = static_cast<std::int64_t>(row);
            part = table.part(table.none(), role);
        } else {
            inner.push_back(static_cast<std::int64_t>(row));
            is_mixed |= table.part(part, role) != part || part == table.other_part;
        }
        reach = std::max(reach, spans.ends[row]);
    }
    put();
    return found;
}

CutPieces cut_pieces(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
                     std::span<const std::int64_t> cuts) {
    std::vector<std::int64_t> first(starts.size());
    find_places(cuts, starts, true, first.data());
    CutPieces found;
    for (std::vector<std::int64_t>* column : {&found.piece, &found.low, &found.high})
        column->reserve(starts.size() + starts.size() / 4);
    const auto put = [&](std::size_t piece, std::int64_t low, std::int64_t high) {
        found.piece.push_back(static_cast<std::int64_t>(piece));
        found.low.push_back(low);
        found.high.push_back(high);
    };
    for (std::size_t piece = 0; piece < starts.size(); ++piece) {
        std::int64_t low = starts[piece];
        for (auto at = static_cast<std::size_t>(first[piece]); at < cuts.size() && cuts[at] < ends[piece];
             ++at) {
            put(piece, low, cuts[at]);
            low = cuts[at];
        }
        put(piece, low, ends[piece]);
    }
    return found;
}

}  // namespace dftrace
