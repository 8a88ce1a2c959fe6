// The events of a whole file as columns, filled block by block, with members of their arguments.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "dftrace/index/budget.hpp"
#include "dftrace/reading/traces/argument_columns.hpp"
#include "dftrace/reading/traces/labels.hpp"
#include "dftrace/reading/traces/narrow_column.hpp"
#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

class EventTable {
  public:
    // How a letter of a phase is told, by its number.
    using Letters = std::array<std::uint8_t, 256>;
    explicit EventTable(const Letters& letters) : letters_(letters) {}

    // Members that are taken of the events whose label is not 0 in the mask; places of texts are -1 where
    // there is none.
    struct Members {
        Members(std::vector<WantedMember> wanted, std::uint8_t phase, Budget& budget);
        std::vector<std::uint8_t> mask;
        ArgumentColumns taken;
        NarrowColumn rows;
        std::vector<NarrowColumn> columns;
    };
    std::deque<Members> members;

    // The events of a block; `tracks` are those of its numbers.
    void add(const Rows& rows, std::string_view text, std::span<const TrackId> tracks, std::int64_t base_ns);
    // Lets go of all rows but the first ones.
    void cut(std::size_t rows);
    std::size_t rows() const noexcept { return rows_; }

    // In this order; `outermost` is 1 where an event names none around it.
    enum Column { ph, label, id, pid, tid, start_ns, dur_ns, outermost };
    static constexpr std::size_t column_count = outermost + 1;
    std::array<NarrowColumn, column_count> columns = no_columns();

  private:
    static std::array<NarrowColumn, column_count> no_columns();

    const Letters& letters_;
    std::size_t rows_ = 0;
    std::vector<std::uint8_t> phases_, bytes_;
    std::vector<std::int64_t> first_, second_;
};

}  // namespace dftrace
