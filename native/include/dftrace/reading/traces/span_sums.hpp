// The one adder of spans: what their durations come to, by name alone or by group and name.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "dftrace/index/budget.hpp"
#include "dftrace/index/durations.hpp"

namespace dftrace {

// Wider than the sum of any durations there can be.
__extension__ using WideNs = __int128;

struct Label;

// What is told of some spans.
struct SpanFigures {
    const Label* label = nullptr;
    std::uint64_t count = 0;
    WideNs total = 0;
    // Without the time of spans inside; nothing where a track was too long to be sorted.
    std::optional<WideNs> self;
    std::int64_t least = 0, greatest = 0;
    double p50 = 0, p95 = 0, p99 = 0;
    // How long the processes went that have such spans; nothing where that is not known of one of them.
    std::optional<WideNs> wall;
};

// What some spans come to. Sums of parts are those of the whole to the bit, in whatever order they are added.
struct SpanSum {
    std::uint64_t count = 0;
    WideNs total = 0;
    std::int64_t least = 0, greatest = 0;
    Durations durations;

    void add(std::int64_t ns, Budget& budget) {
        least = count ? std::min(least, ns) : ns;
        greatest = std::max(greatest, ns);
        ++count;
        total += ns;
        durations.add(ns, budget);
    }
    void add(const SpanSum& more, Budget& budget);
    void forget(Budget& budget);
    // All but the label, and what is not of durations.
    SpanFigures figures() const;
};

// The wall time of the processes that have some spans.
struct Wall {
    WideNs ns = 0;
    bool known = true;
    void add(std::optional<std::int64_t> more) {
        ns += more.value_or(0);
        known = known && more.has_value();
    }
    std::optional<WideNs> told() const { return known ? std::optional(ns) : std::nullopt; }
};

// What spans have in common beside their name: two numbers, of which either may be none.
struct SpanGroup {
    static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::min();
    std::int64_t first = none, second = none;
    bool operator==(const SpanGroup&) const = default;
};

// Sums of spans by group and name, of a process or of those that were taken in.
class SpanSums {
  public:
    explicit SpanSums(std::size_t most_bytes) : budget_(most_bytes), table_(64) {}

    struct Columns {
        std::size_t size;
        const std::int64_t *first, *second, *name, *start, *duration, *own;
        const char*
            chosen;  // null for all; of others only the time counts from when to when their group went
    };
    void add(const Columns& spans);

    // Forgets what spans come to, but not of which groups and names: another process has mostly the same.
    void forget();

    // Takes in a process. `groups`: what each of its groups is called here, in their order; null for the
    // same. `wall`: how long it went; without it each group went from its first span to its last.
    struct Process {
        const SpanSums& sums;
        const std::vector<std::int64_t>* groups;
        bool by_group;
        std::optional<std::int64_t> wall;
    };
    void take(const Process& process);

    // Appends all that was taken in, for another process to take in.
    void pack(std::vector<std::int64_t>& to) const;
    // Takes in what was packed. `names` and `groups`: what its names, and the first numbers of its groups,
    // are called here; null for groups that are called the same. False, and it is of no use, where that
    // cannot have been packed.
    bool take_packed(const std::int64_t* from, std::size_t size, const std::vector<std::int64_t>& names,
                     const std::vector<std::int64_t>* groups);

    const std::vector<SpanGroup>& groups() const noexcept { return groups_; }
    std::size_t size() const noexcept { return rows_.size(); }

    // Group, name, and what the spans come to: the greatest totals first, as many as asked for.
    struct Told {
        SpanGroup group;
        std::int64_t name;
        SpanFigures figures;
    };
    std::vector<Told> told(std::size_t most) const;

  private:
    struct Row {
        std::uint32_t group;  // of `groups_`
        std::int64_t name;
        SpanSum sum;
        WideNs own = 0;
        Wall wall;
    };
    struct Reach {
        std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = -1;
    };
    // Of a group its two numbers, of a row its group and name.
    struct Known {
        std::int64_t a, b;
        bool is_row;
        std::uint32_t number;
        bool is(const Known& other) const noexcept {
            return a == other.a && b == other.b && is_row == other.is_row;
        }
    };
    // The number of what is called so; the one that it gets where it is new.
    std::uint32_t number(std::int64_t a, std::int64_t b, bool is_row, std::uint32_t fresh);
    std::size_t place(const Known& of) const noexcept;
    std::uint32_t group_of(const SpanGroup& group);
    Row& row_of(std::uint32_t group, std::int64_t name);

    Budget budget_;
    std::vector<SpanGroup> groups_;
    std::vector<Reach> reaches_;  // by group
    std::vector<Row> rows_;
    std::vector<Known> known_;
    std::vector<std::uint32_t> table_;  // numbers of `known_` from 1, by their hashes; 0 for none
    std::size_t last_ = 0;              // of `known_`, what was asked for last
};

}  // namespace dftrace
