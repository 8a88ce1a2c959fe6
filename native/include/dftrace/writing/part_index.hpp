// What the lines of a part of a trace add up to, kept while they are written: the index line is made of it.
//
// Nothing here may keep a line from being written. Where there is no room for the figures, where spans of a
// track stand in another order than that of their ends, or where a number is too large, there is no index
// from there on, and readers add the lines up.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dftrace/index/block_facts.hpp"
#include "dftrace/index/budget.hpp"
#include "dftrace/index/covered_time.hpp"
#include "dftrace/index/durations.hpp"

namespace dftrace {

class PartIndex {
  public:
    // Whether a part may end before the lines that are gathered, so that they must not be added up with its
    // own. Else they are added up while they are still in the processor's nearest cache.
    explicit PartIndex(bool waits_for_blocks = false) noexcept : waits_for_blocks_(waits_for_blocks) {}

    // A finished span as the line has it, in the order of the lines; it begins at 0 or later. `name()` is
    // asked for where the node is not known yet: the JSON of its name, empty for none.
    template <typename Name>
    [[gnu::always_inline]] inline void add_span(std::uint32_t node, Name name, std::uint32_t tid,
                                                std::int64_t start_ns, std::int64_t end_ns,
                                                std::uint64_t parent) noexcept {
        const std::uint32_t label = node < label_of_node_.size() ? label_of_node_[node] : no_label;
        const Span span{start_ns, end_ns, parent, label, tid};
        if (label == no_label || static_cast<std::uint64_t>(end_ns) > latest_ns || gathered_ == room_)
            [[unlikely]]
            return add_unusual(node, name(), span);
        spans_[gathered_++] = span;
    }
    // Any other event.
    void add_other(std::uint32_t node, std::string_view name_json, char ph) noexcept;
    // A track on which there will be no more.
    void forget_track(std::uint32_t tid) noexcept;
    // There is something that is not known here.
    void give_up() noexcept;

    // The block that is gathered is in the part, with so many line breaks and from when to when it reaches.
    void landed(std::uint64_t line_breaks, const BlockReach& reach) noexcept;
    // A part begins, in which nothing is written yet: what is gathered goes there.
    void begin_part() noexcept;
    // As of now an index line may take so many bytes of the file.
    std::size_t room(std::uint64_t file_bytes, bool last) const noexcept;
    // Members of the arguments of an index line that comes behind so many plain bytes; empty where there is
    // no index, or none that would fit into so many bytes of the file.
    std::string members(std::uint64_t plain_bytes, std::size_t room) noexcept;
    // It takes so many bytes, and was written or not.
    void tried(std::size_t packed_bytes, bool written, std::uint64_t file_bytes) noexcept;

  private:
    struct Span {
        std::int64_t start_ns;
        std::int64_t end_ns;
        std::uint64_t parent;
        std::uint32_t label;
        std::uint32_t tid;
    };
    struct Other {
        std::uint32_t label;
        char ph;
    };
    struct Over {
        std::size_t spans;  // that stand before
        std::uint32_t tid;
    };
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
    // Of a name that is not known yet, too late for readers, or where there is no room.
    [[gnu::cold, gnu::noinline]] void add_unusual(std::uint32_t node, std::string_view name_json,
                                                  Span span) noexcept;
    // There is room for another span behind it.
    void make_room();
    // Adds up what is gathered.
    void take_in();
    // Gives up where there is none, and none to be had.
    std::uint32_t find_label(std::uint32_t node, std::string_view name_json) noexcept;
    std::uint32_t new_label(std::uint32_t node, std::string_view name_json);
    std::uint32_t track_of(std::uint32_t tid);
    void add(const Span* from, const Span* to);
    void forget(std::uint32_t tid);
    std::string text(std::uint64_t plain_bytes) const;

    static constexpr std::size_t most_bytes = std::size_t{64} << 20;
    Budget budget_{most_bytes};
    bool given_up_ = false;
    bool waits_for_blocks_;
    // Gathered, in their order.
    std::unique_ptr<Span[]> spans_;
    std::size_t gathered_ = 0, room_ = 0;
    std::vector<Other> others_;
    std::vector<Over> over_;  // tracks on which there are no more
    std::vector<Figures> figures_;
    std::unordered_map<std::string, std::uint32_t> labels_;
    std::vector<std::uint32_t> label_of_node_;
    CoveredTime covered_;
    std::unordered_map<std::uint32_t, std::uint32_t> tracks_;
    std::vector<std::uint32_t> free_tracks_;
    std::uint64_t line_breaks_ = 0;  // in the part
    BlockReach reach_;               // of its events
    bool fresh_ = false;             // events since the last index line
    std::uint64_t bytes_at_last_ = 0;
    std::size_t expected_bytes_ = 400;
};

}  // namespace dftrace
