// The bytes of a trace that nobody recorded, in the recorder's layout: lines by patterns, and rows of
// numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/system/host_clocks.hpp"
#include "dftrace/text/byte_buffer.hpp"
#include "dftrace/writing/codec.hpp"
#include "dftrace/writing/line_formatter.hpp"
#include "dftrace/writing/part_index.hpp"

namespace dftrace {

class MadeTrace {
  public:
    // What a row says before the numbers for its arguments: which pattern, from when to when, in ns since
    // 1970, which event, in which span, which item (-1: none).
    enum Column : std::size_t { pattern, start_ns, end_ns, id, parent, item, first_argument };

    // `clocks` as they stand when the trace begins; they keep their distance until its end. Many traces may
    // have one codec, which outlives them.
    MadeTrace(TraceSettings settings, ProcessIdentity process, std::uint32_t parent_pid, HostClocks clocks,
              BlockCodec& codec);

    // What lines have in common; returns its number. In `args`, members as they stand behind others, each
    // `%d` takes a number and `%t` nanoseconds as microseconds. A counter is told by its `args` alone.
    std::size_t add_pattern(Kind kind, std::string name_json, std::uint32_t tid, std::uint16_t level,
                            std::string_view args);

    // Each is whole blocks, which stand behind those before.
    std::string opening(const std::vector<std::pair<std::uint32_t, std::string>>& tracks);
    // Throws std::invalid_argument where a row is none.
    std::string rows(std::span<const std::int64_t> numbers, std::size_t width);
    // The index, if it is asked for, and the closing line, at so many ns since 1970.
    std::string ending(std::uint64_t at_ns, bool with_index);

  private:
    struct Pattern {
        Kind kind;
        std::uint16_t level;
        std::uint32_t tid;
        std::string name_json, track;
        std::vector<std::string> texts;  // one more than there are places
        std::vector<bool> is_time;       // of each place
    };
    void arguments(const Pattern& of, const std::int64_t* numbers);
    void line(ByteBuffer& out, std::span<const std::int64_t> row);
    std::string block(const ByteBuffer& text, BlockFacts facts);

    const TraceSettings settings_;
    const ProcessIdentity process_;
    const std::uint32_t parent_pid_;
    const HostClocks clocks_;
    const LineFormatter formatter_;
    BlockCodec& codec_;
    std::vector<Pattern> patterns_;
    PartIndex index_;
    BlockReach reach_;
    LineCounts lines_{};
    std::uint64_t plain_bytes_ = 0, file_bytes_ = 0;
    std::string args_;
};

}  // namespace dftrace
