// The events of a block as an array of Arrow's. What the block has in memory is not copied, and each column
// keeps what it needs of it for as long as somebody holds it: released in any order, by any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "dftrace/reading/arrow/c_data.hpp"
#include "dftrace/reading/arrow/label_texts.hpp"
#include "dftrace/reading/traces/rows.hpp"
#include "dftrace/reading/traces/scanner.hpp"

namespace dftrace {

// A text with the events in it. Times have the base of their trace; -1 where there is none.
struct ScannedBlock {
    PlainText text;
    Rows rows;
    std::vector<std::int64_t> pid, tid;
};

enum class EventColumn : std::uint8_t { file, ph, cat, name, id, pid, tid, start_ns, dur_ns, args, parent };

std::optional<EventColumn> event_column(std::string_view name) noexcept;

// How the arrays of these columns are laid out.
void describe_events(const std::vector<EventColumn>& columns, ArrowSchema& out);

// The rows of a block; `file` is the number of the trace that it is of.
void give_events(const std::shared_ptr<const ScannedBlock>& block, LabelTexts& texts, std::uint32_t file,
                 const std::vector<EventColumn>& columns, ArrowArray& out);

}  // namespace dftrace
