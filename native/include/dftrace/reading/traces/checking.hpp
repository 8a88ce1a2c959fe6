// Holding a trace against the format, as far as that goes at a glance.
//
// What is plainly right is counted here. All other lines, and all lines where nothing is plain (before the
// header, behind the footer), are given to who called, who has the rules and the words.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <unordered_map>
#include <vector>

#include "dftrace/index/block_facts.hpp"
#include "dftrace/reading/traces/line_figures.hpp"
#include "dftrace/reading/traces/line_walk.hpp"
#include "dftrace/reading/traces/nested_tracks.hpp"

namespace dftrace {

struct CheckedCounts {
    std::uint64_t spans = 0, instants = 0, counters = 0, flows = 0;
};

// Where a block is not what it says of itself; times in ns.
struct BlockFault {
    enum class What : std::uint8_t { packed_bytes, plain_bytes, lines, first, last, index };
    std::uint64_t line = 0;  // the first of the block
    What what{};
    std::int64_t said = 0, found = 0;
};

// Which numbers of events a process has used, to tell those that are used twice.
class UsedIds {
  public:
    // Whether it was there before. Threads take their numbers in blocks, so that few pages are of use at a
    // time; of numbers in more pages than are kept nothing is known.
    bool again(std::uint64_t id) {
        const std::uint64_t number = id / ids_of_page;
        if (!last_ || number != last_number_) {
            if (pages_.size() >= most_pages && !pages_.contains(number)) {
                full_ = true;
                return false;
            }
            last_ = &pages_[number];
            last_number_ = number;
        }
        const std::size_t at = id % ids_of_page;
        const bool before = last_->test(at);
        last_->set(at);
        return before;
    }
    // What comes are the numbers of another process.
    void forget() noexcept {
        pages_.clear();
        last_ = nullptr;
    }
    // Some were not looked at.
    bool full() const noexcept { return full_; }

  private:
    static constexpr std::size_t ids_of_page = 4096;
    static constexpr std::size_t most_pages = 1u << 16;  // of 512 bytes
    using Page = std::bitset<ids_of_page>;
    std::unordered_map<std::uint64_t, Page> pages_;
    Page* last_ = nullptr;
    std::uint64_t last_number_ = 0;
    bool full_ = false;
};

class Checking {
  public:
    // Where spans have to be sorted to see whether they nest, at most so many are.
    explicit Checking(std::size_t most_spans) : most_spans_(most_spans), nesting_(most_spans) {}

    // Takes the blocks.
    LineWalk& walk() noexcept { return walk_; }
    // The block that the walk has taken says this of itself, and has so many bytes.
    void hold_block(const BlockFacts& facts, std::uint64_t packed_bytes);
    // The first ones, and how many there are.
    const std::vector<BlockFault>& block_faults() const noexcept { return block_faults_; }
    std::uint64_t block_fault_count() const noexcept { return block_fault_count_; }
    // Lines with the number of an event before them: the first ones, and how many there are.
    struct RepeatedId {
        std::uint64_t line, id;
    };
    const std::vector<RepeatedId>& repeated_ids() const noexcept { return repeated_ids_; }
    std::uint64_t repeated_id_count() const noexcept { return repeated_id_count_; }
    // Before the first line: those of the part before this one; taken from it.
    UsedIds& used_ids() noexcept { return used_ids_; }
    // What all lines before the one that was given last add up to.
    LineFigures& figures() noexcept { return figures_; }

    // To the next line of the block that the rules must look at; false behind the last one.
    bool step();
    // What holds behind that line: plain lines with such times are well, or none is. Changes once only: a
    // file with two ways of writing times is left to the rules.
    void certify(TimeStyle style) noexcept;
    // A span that the rules have seen, of the line that was given last.
    void add_span(std::uint32_t pid, std::uint32_t tid, std::int64_t start, std::int64_t end);

    const CheckedCounts& counts() const noexcept { return counts_; }

    // All was read. True where it must be read again, for the sake of spans in disorder: the same blocks and
    // lines, of which `step` gives none then.
    bool end();
    NestedTracks& nesting() noexcept { return nesting_; }
    // Spans of tracks in disorder beyond those that are sorted.
    std::uint64_t left_out() const noexcept { return nesting_.left_out() + (again_ ? odd_left_out_ : 0); }

  private:
    bool passes();
    void hold_id();
    void add_row();
    void collect_until(std::uint64_t line);

    // Of blocks, and of numbers that are used twice.
    static constexpr std::size_t most_faults = 1000;
    static constexpr std::size_t most_figure_bytes = std::size_t{16} << 20;
    const std::size_t most_spans_;
    LineWalk walk_;
    // By the numbers that tracks have while names are not forgotten.
    struct KnownTrack {
        std::uint64_t number = 0;
        NestedTracks::Track* track = nullptr;
    };
    std::vector<KnownTrack> tracks_;
    std::uint64_t generation_ = 0;
    CheckedCounts counts_;
    LineFigures figures_{most_figure_bytes};
    std::vector<BlockFault> block_faults_;
    std::uint64_t block_fault_count_ = 0;
    UsedIds used_ids_;
    std::optional<std::int64_t> ids_pid_;
    std::vector<RepeatedId> repeated_ids_;
    std::uint64_t repeated_id_count_ = 0;
    // Lines are certified behind `certified_from_` up to `certified_to_`, if their times are in this style.
    static constexpr std::uint64_t no_line = std::numeric_limits<std::uint64_t>::max();
    TimeStyle style_ = TimeStyle::none;
    std::uint64_t certified_from_ = no_line, certified_to_ = no_line;
    NestedTracks nesting_;
    std::vector<NestedTracks::Span> odd_spans_;  // by line
    std::size_t odd_collected_ = 0;
    std::uint64_t odd_left_out_ = 0;
    bool again_ = false;
};

}  // namespace dftrace
