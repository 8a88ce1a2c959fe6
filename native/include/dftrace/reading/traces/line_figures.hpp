// What the lines of a file add up to so far, for holding an index line against it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "dftrace/index/block_facts.hpp"
#include "dftrace/index/budget.hpp"
#include "dftrace/index/covered_time.hpp"
#include "dftrace/reading/traces/line_walk.hpp"
#include "dftrace/reading/traces/totals.hpp"

namespace dftrace {

class LineFigures {
  public:
    // Beyond so many bytes there are no figures any more.
    explicit LineFigures(std::size_t most_bytes) : budget_(most_bytes) {}

    // The line that a walk has stepped to.
    void add(LineWalk& walk);
    // Before the first line: where the tracks stood at the end of the part before this one.
    void resume(const std::vector<KnownFigures::Track>& tracks);

    // Nothing where they take too much. `aside`: spans stand in another order than that of their ends, so
    // that it is not known what lies inside of what.
    std::optional<KnownFigures> told() const;
    bool aside() const noexcept { return covered_time_.any_aside(); }

  private:
    struct Figures : SpanSum {
        // Beyond 64 bits there is no index; what is here is then only known to differ.
        std::uint64_t covered = 0;
        std::array<std::uint64_t, other_phases.size()> others{};
    };
    void add_row(LineWalk& walk);
    std::uint32_t label_of(LineWalk& walk, std::uint32_t number);
    std::uint32_t track_of(LineWalk& walk, std::uint32_t number);
    void give_up() noexcept;

    Budget budget_;
    Labels labels_{budget_};
    // By the numbers that a walk has for them: one more than ours, 0 for none.
    std::vector<std::uint32_t> label_of_, track_of_;
    std::uint64_t generation_ = 0;
    std::vector<Figures> figures_;  // by label
    CoveredTime covered_time_;
    BlockReach reach_;
    bool given_up_ = false;
};

}  // namespace dftrace
