// Whose the time of a thread is: to which part of a step each moment of it belongs, and what work it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dftrace {

// Spans of a thread by their start, of those that begin together the longest first.
struct ThreadSpans {
    std::span<const std::int64_t> starts, ends;
    std::span<const std::uint8_t> roles;
};

// To which part a span's time belongs, by the part of what encloses it and by its role.
struct PartTable {
    std::span<const std::uint8_t> within;  // a row of all roles for each part; that of none is the last
    std::size_t roles = 0;
    std::uint8_t other_part = 0, other_role = 0;  // what is other work is known by its name alone

    std::uint8_t none() const noexcept { return static_cast<std::uint8_t>(within.size() / roles - 1); }
    std::uint8_t part(std::uint8_t outer, std::uint8_t role) const noexcept {
        return within[outer * roles + role];
    }
};

// Pieces of time in order that do not overlap, and the span to which each belongs.
struct ThreadPieces {
    std::vector<std::int64_t> starts, ends;
    std::vector<std::uint8_t> parts;
    std::vector<std::int32_t> owners;
};

// Of the spans that count the innermost at each moment, with neighbours that may overlap by `near`.
ThreadPieces thread_pieces(const ThreadSpans& spans, std::span<const std::uint8_t> counts,
                           const PartTable& table, std::int64_t near);

// What a span of a role is to the work of its thread.
enum class Work : std::uint8_t { none, work, other };

// Rows of spans of work that lie in none: those in which all is of their own part, and, with what lies in
// them, those in which some of it is not.
struct OutermostWork {
    std::vector<std::int64_t> whole, mixed;
};

// Other work counts where it does not begin within work that lies in none.
OutermostWork outermost_work(const ThreadSpans& spans, std::span<const Work> of_roles,
                             const PartTable& table);

// Pieces cut where some moments are: the number of each, from when on, and until when.
struct CutPieces {
    std::vector<std::int64_t> piece, low, high;
};

CutPieces cut_pieces(std::span<const std::int64_t> starts, std::span<const std::int64_t> ends,
                     std::span<const std::int64_t> cuts);

}  // namespace dftrace
