// Samples of stacks as columns, by the numbers that a line of them holds.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dftrace/reading/traces/labels.hpp"
#include "dftrace/reading/traces/rows.hpp"

namespace dftrace {

class SampleColumns {
  public:
    // Of samples in their order: when, how long since the one before, what of a processor the thread used
    // meanwhile, all in us; how long it stands for and how long the thread waited for a processor, in ns;
    // thread, stack, and whether inner frames are not known.
    static constexpr std::size_t columns = 8;
    using Columns = std::array<std::vector<std::int64_t>, columns>;

    // Lines of this number tell samples from `at_us` on; what was known under it is forgotten.
    void begin(std::int64_t pid, std::uint64_t number, std::int64_t at_us, std::int64_t period_ns);
    void forget(std::int64_t pid, std::uint64_t number) { profiles_.erase({pid, number}); }
    // Which stack a node of theirs is; false where nothing has begun under the number.
    bool learn(std::int64_t pid, std::uint64_t number, std::int64_t node, std::int64_t stack);
    std::optional<std::int64_t> stack_of(std::int64_t pid, std::uint64_t number, std::int64_t node) const;
    // The lines of a block from one on, as far as they are written as the recorder does and tell no nodes;
    // returns the first that is not.
    std::size_t take(const std::vector<StackLine>& lines, std::size_t from, std::string_view text,
                     const Labels& labels);
    // Those of one line, or none, and false, where it is not such a line: its arguments without braces.
    bool add(std::int64_t pid, std::uint64_t number, std::int64_t tid, std::string_view args);

    std::size_t size() const noexcept { return size_; }
    // Those of each process, which are here no more.
    std::map<std::int64_t, Columns> taken() noexcept;

  private:
    struct Profile {
        std::int64_t at_us = 0, period_ns = 0;
        std::unordered_map<std::int64_t, std::int64_t> stack_of;
    };
    std::map<std::pair<std::int64_t, std::uint64_t>, Profile> profiles_;
    std::map<std::int64_t, Columns> held_;
    std::size_t size_ = 0;
    std::int64_t whole_ns_ = 0;  // for which all of them stand, also those that were taken
    // Of the line at hand.
    std::vector<std::int64_t> stacks_, since_, cpu_, cut_, late_;
};

}  // namespace dftrace
