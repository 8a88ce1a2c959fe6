// Members of the arguments of some events of a block, as columns.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dftrace/index/budget.hpp"
#include "dftrace/reading/traces/argument_pattern.hpp"
#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

struct WantedMember {
    enum class Form : std::uint8_t {
        whole,   // a whole number, see `whole_member`
        micros,  // a number of microseconds, as nanoseconds
        text,    // a place in `texts`; what is no text stands there as it is written
        all,     // of no member, but of the arguments as they are written: a place in `texts`
    };
    std::string name;
    Form form;
};

// Takes members from one block after the other. Events of one name tell the same things in the same order:
// what the one before told is looked for first.
class ArgumentColumns {
  public:
    // Of events of any phase, or of one.
    ArgumentColumns(std::vector<WantedMember> wanted, std::uint8_t phase, Budget& budget);

    // Of the events whose label is not 0 in `labels`; of duplicate members the last one counts. `phases` are
    // those of the rows.
    void take(const Rows& rows, std::span<const std::uint8_t> phases, std::string_view block,
              std::span<const std::uint8_t> labels);

    const std::vector<WantedMember>& wanted() const noexcept { return wanted_; }
    // Of the block that came last: the events, in order, and of each all that is wanted; `no_time` where it
    // has none.
    const std::vector<std::uint32_t>& rows() const noexcept { return rows_; }
    const std::vector<std::int64_t>& values() const noexcept { return values_; }
    // Of all blocks.
    const std::vector<std::string>& texts() const noexcept { return texts_; }

  private:
    // A member at its place: its key with quotes and colon, and what is wanted by that name.
    struct Step {
        std::string key;
        std::vector<std::uint32_t> wanted;
        std::string text;  // as it was written the last time, with its place
        std::int64_t place = 0;
    };
    struct Hash {
        using is_transparent = void;
        std::size_t operator()(std::string_view text) const noexcept {
            return std::hash<std::string_view>()(text);
        }
    };
    using Places = std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>>;

    // How events of a name tell what they do.
    struct Told {
        std::vector<Step> steps;
        ArgumentPattern pattern;
        // Of all that tell the same but for numbers: what is wanted, and where each number of theirs goes.
        std::vector<std::int64_t> values;
        std::array<std::int32_t, ArgumentPattern::most_numbers> places;
    };

    void add(std::uint32_t row, std::string_view args, Told& told);
    bool walk_pattern(std::string_view args, Told& told, std::int64_t* into);
    bool walk_plain(std::string_view args, Told& told, std::int64_t* into);
    void learn_pattern(std::string_view args, Told& told, const std::int64_t* found);
    void learn(Step& step, std::string_view key);
    void take_member(std::string_view key, std::string_view value, std::int64_t* into);
    std::int64_t value_of(WantedMember::Form form, std::string_view value);
    std::int64_t place_of(std::string_view value);

    std::vector<WantedMember> wanted_;
    std::uint8_t phase_;
    Budget& budget_;
    std::vector<std::uint32_t> rows_;
    std::vector<std::int64_t> values_;
    std::vector<std::string> texts_;
    Places written_;             // as they are written
    Places places_;              // as they are in `texts_`
    std::array<Told, 32> told_;  // by label; some share one
};

}  // namespace dftrace
