// Lines that no rule of the format can be against, told without the rules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dftrace/reading/traces/labels.hpp"
#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

// How a trace writes times: what its header says.
enum class TimeStyle : std::uint8_t { none, three_decimals, whole_micros };

class PlainLines {
  public:
    explicit PlainLines(const Labels& labels) : labels_(labels) {}

    // The style in which a row's line is as the format has it; `none` where the rules must look at it. `text`
    // is what the row was scanned from.
    TimeStyle style_of(const Rows& rows, std::size_t row, std::string_view text);

  private:
    struct LabelFacts {
        bool known = false;
        bool whole = false;  // neither text ends with a backslash, which Perfetto loses what follows for
        bool counter = false, flow = false, inspection = false;
    };
    const LabelFacts& facts_of(std::uint32_t label);
    bool is_track_kept(std::uint32_t track);
    bool are_arguments_kept(std::string_view args);
    bool are_more_kept(std::string_view members);

    const Labels& labels_;
    std::vector<LabelFacts> facts_;
    std::vector<std::uint8_t> tracks_;  // by number: 0 not known, 1 kept by viewers, 2 not
    std::string host_;                  // the last `"hhash":"..."`
    std::string more_;                  // the last arguments that were found well
};

}  // namespace dftrace
