// What the lines of a part of a trace add up to, kept while they are written: the index line is made of it.
//
// Nothing here may keep a line from being written. Where there is no room for the figures, where spans of a
// track stand in another order than that of their ends, or where a number is too large, there is no index
// from there on, and readers add the lines up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dftrace/index/budget.hpp"
#include "dftrace/index/covered_time.hpp"
#include "dftrace/index/durations.hpp"

namespace dftrace {

// Of the lines of a block that is not written yet.
struct IndexedLines {
    struct Span {
        std::int64_t start_ns;
        std::int64_t end_ns;
        std::uint64_t parent;
        std::uint32_t label;
        std::uint32_t tid;
    };
    std::vector<Span> spans;  // finished ones, in their order
    struct Other {
        std::uint32_t label;
        char ph;
    };
    std::vector<Other> others;
    struct Over {
        std::size_t spans;  // that stand before
        std::uint32_t tid;
    };
    std::vector<Over> over;  // tracks on which there are no more

    void clear() noexcept {
        spans.clear();
        others.clear();
        over.clear();
    }
};

class PartIndex {
  public:
    // A finished span as the line has it, in the order of the lines; it begins at 0 or later. `name()` is
    // asked for where the node is not known yet: the JSON of its name, empty for none.
    template <typename Name>
    [[gnu::always_inline]] inline void add_span(std::uint32_t node, Name name, std::uint32_t tid,
                                                std::int64_t start_ns, std::int64_t end_ns,
                                                std::uint64_t parent) noexcept {
        std::uint32_t label = node < label_of_node_.size() ? label_of_node_[node] : no_label;
        if (label == no_label) [[unlikely]] {
            label = find_label(node, name());
            if (label == no_label) return;
        }
        if (static_cast<std::uint64_t>(end_ns) > latest_ns) [[unlikely]]
            return give_up();
        try {
            gathered_.spans.push_back({start_ns, end_ns, parent, label, tid});
        } catch (const std::bad_alloc&) {
            give_up();
        }
    }
    // Any other event.
    void add_other(std::uint32_t node, std::string_view name_json, char ph) noexcept;
    // The lines of the block that is gathered.
    IndexedLines take_lines() noexcept { return std::exchange(gathered_, {}); }
    // A track on which there will be no more.
    void forget_track(std::uint32_t tid) noexcept;
    // There is something that is not known here.
    void give_up() noexcept;

    // A block is in the part, with so many line breaks.
    void landed(const IndexedLines& lines, std::uint64_t line_breaks) noexcept;
    void landed(std::uint64_t line_breaks) noexcept;  // the gathered one
    // A part begins, in which nothing is written yet.
    void begin_part() noexcept;
    // As of now an index line may take so many bytes of the file.
    std::size_t room(std::uint64_t file_bytes, bool last) const noexcept;
    // Members of the arguments of an index line that comes behind so many plain bytes; empty where there is
    // no index, or none that would fit into so many bytes of the file.
    std::string members(std::uint64_t plain_bytes, std::size_t room) noexcept;
    // It takes so many bytes, and was written or not.
    void tried(std::size_t packed_bytes, bool written, std::uint64_t file_bytes) noexcept;

  private:
    static constexpr std::string_view phases = "BiCsfM";
    struct Figures {
        std::string name_json;
        std::int64_t total_ns = 0;
        std::uint64_t covered_ns = 0;
        std::int64_t least_ns = std::numeric_limits<std::int64_t>::max(), greatest_ns = 0;
        Durations durations;
        std::array<std::uint64_t, phases.size()> others{};
    };
    static constexpr std::uint64_t latest_ns = 4'000'000'000'000'000'000;  // that readers know
    static constexpr std::uint32_t no_label = std::numeric_limits<std::uint32_t>::max();
    // Gives up where there is none, and none to be had.
    std::uint32_t find_label(std::uint32_t node, std::string_view name_json) noexcept;
    std::uint32_t new_label(std::uint32_t node, std::string_view name_json);
    std::uint32_t track_of(std::uint32_t tid);
    void add(const IndexedLines::Span* from, const IndexedLines::Span* to);
    void forget(std::uint32_t tid);
    std::string text(std::uint64_t plain_bytes) const;

    static constexpr std::size_t most_bytes = std::size_t{64} << 20;
    Budget budget_{most_bytes};
    bool given_up_ = false;
    IndexedLines gathered_;
    std::vector<Figures> figures_;
    std::unordered_map<std::string, std::uint32_t> labels_;
    std::vector<std::uint32_t> label_of_node_;
    CoveredTime covered_;
    std::unordered_map<std::uint32_t, std::uint32_t> tracks_;
    std::vector<std::uint32_t> free_tracks_;
    std::uint64_t line_breaks_ = 0;  // in the part
    bool fresh_ = false;             // events since the last index line
    std::uint64_t bytes_at_last_ = 0;
    std::size_t expected_bytes_ = 400;
};

}  // namespace dftrace
