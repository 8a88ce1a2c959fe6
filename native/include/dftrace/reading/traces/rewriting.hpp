// The lines of a trace as they stand in a file of several: of another process, at another time, some left
// out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dftrace/deflating/gzip_members.hpp"
#include "dftrace/index/block_facts.hpp"
#include "dftrace/reading/traces/labels.hpp"
#include "dftrace/reading/traces/line_walk.hpp"
#include "dftrace/reading/traces/shown_clock.hpp"
#include "dftrace/text/byte_buffer.hpp"

namespace dftrace {

struct Rewritten {
    std::int64_t pid = 0, new_pid = 0;  // a thread that has the number of its process keeps that
    ShownClock clock;
    // In ns as they are shown; what touches it not is left out.
    struct Window {
        std::int64_t first = 0, last = 0;
    };
    std::optional<Window> window;
    // Only spans of these categories, or names in them; everything without. An empty name is all of a
    // category.
    std::optional<std::vector<Label>> kept;
    bool gives_all = false;       // the caller decides on every line
    bool gives_counters = false;  // and on these
    bool packed = false;          // as members of gzip
};

class Rewriting {
  public:
    explicit Rewriting(Rewritten how);

    LineWalk& walk() noexcept { return walk_; }
    const ShownClock& clock() const noexcept { return how_.clock; }
    // To the next line on which the caller decides: what is not plainly right, has no time, or lies at the
    // edge of the window. Those before it are written. False behind the last one of the block.
    bool step();
    // Writes a line, without its break, in place of the one that was stepped to, or before the first.
    // `timed`: it may have a time.
    void put(std::string_view line, bool timed);
    // Behind a block: what is to be written now; nothing while that is little, unless it is the `last`. The
    // block as it lies in the file (`packed`; empty where it does not) is given again where its lines have
    // stayed as they were. Stands until the next line is written.
    std::string_view take(std::string_view packed, bool last);

    // Of the lines that no caller has seen: from when to when they were, and how many are in the window.
    const BlockReach& reach() const noexcept { return seen_; }
    std::uint64_t written() const noexcept { return written_; }

  private:
    // A time of a line may be off by this at the edge of a window, since doubles say where that is.
    static constexpr std::int64_t margin_ns = 4000;
    static constexpr std::size_t enough = 512u << 10;
    // A member that is shorter may hold only the bracket, which no viewer opens.
    static constexpr std::size_t least_member = 4096;

    enum class Place { outside, edge, inside };
    Place place_of(std::int64_t begin, std::int64_t end) const noexcept;
    bool is_kept(std::uint32_t label);
    bool write(std::string_view line, std::int64_t begin, std::int64_t end, std::int64_t duration);
    std::string_view pack(std::string_view text);

    Rewritten how_;
    LineWalk walk_;
    bool same_ = false;  // lines stay as they are
    std::uint64_t generation_ = 0;
    std::vector<std::uint8_t> kept_;  // by label: 0 not known, 1 kept, 2 not
    ByteBuffer text_;
    std::size_t block_at_ = 0;  // in the text: where that of the last block begins
    BlockReach reach_, block_reach_;
    BlockReach seen_;
    std::uint64_t written_ = 0;
    std::optional<GzipMembers> members_;
    std::string taken_;
};

}  // namespace dftrace
