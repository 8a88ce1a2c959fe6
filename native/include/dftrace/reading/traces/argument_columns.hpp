// Members of the arguments of some events of a block, as columns.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

struct WantedMember {
    enum class Form {
        whole,   // a whole number, see `whole_member`
        micros,  // a number of microseconds, as nanoseconds
        text,    // a place in `ArgumentColumns::texts`; what is no text stands there as it is written
    };
    std::string name;
    Form form;
};

struct ArgumentColumns {
    std::vector<std::uint32_t> rows;   // the events, in order
    std::vector<std::int64_t> values;  // of each row all that is wanted; `no_time` where it has none
    std::vector<std::string> texts;    // each once
};

// Those of the events whose label is not 0 in `labels`; of duplicate members the last one counts.
ArgumentColumns argument_columns(const Rows& rows, std::string_view block,
                                 std::span<const std::uint8_t> labels, std::span<const WantedMember> wanted);

}  // namespace dftrace
