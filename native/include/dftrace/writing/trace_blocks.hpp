// Lines gathered into blocks, and blocks brought into the parts of a trace: each part has a beginning and an
// index of its own, and the block that does not fit into one is the first of the next.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/text/byte_buffer.hpp"
#include "dftrace/writing/codec.hpp"
#include "dftrace/writing/line_formatter.hpp"
#include "dftrace/writing/open_lines.hpp"
#include "dftrace/writing/part_index.hpp"
#include "dftrace/writing/trace_parts.hpp"
#include "dftrace/writing/tracks.hpp"
#include "dftrace/writing/written_end.hpp"

namespace dftrace {

// Lines that are written together.
struct GatheredBlock {
    ByteBuffer text;
    BlockReach reach;  // of the events in it
    WriteFacts facts;
    std::string compressed;
};

inline BlockFacts facts_of_lines(const ByteBuffer& text, const BlockReach& reach) noexcept {
    return {.lines = static_cast<std::uint32_t>(text.line_breaks()), .reach = reach};
}

// Compression of blocks on threads of its own, while the caller gathers the next ones: for recovery,
// where nobody else needs the processors' time.
class BlocksAhead {
  public:
    // As many threads as are to be had, at most `threads`.
    BlocksAhead(Compression compression, int level, unsigned threads);
    ~BlocksAhead();
    BlocksAhead(const BlocksAhead&) = delete;
    BlocksAhead& operator=(const BlocksAhead&) = delete;

    std::size_t threads() const noexcept { return workers_.size(); }
    bool empty() const noexcept { return blocks_.empty(); }
    // Two for each thread: one that it works on, one to go on with.
    bool full() const noexcept { return blocks_.size() >= 2 * workers_.size(); }
    void put(GatheredBlock block);
    // The oldest, compressed; waits for it. Throws what its compression has thrown.
    GatheredBlock take();

  private:
    struct Job {
        GatheredBlock block;
        bool done = false;
        std::exception_ptr failure;
    };
    void work(BlockCodec& codec);

    std::deque<std::unique_ptr<Job>> blocks_;  // the caller's own
    std::mutex mutex_;
    std::condition_variable waiting_has_some_;
    std::condition_variable done_;
    std::deque<Job*> waiting_;
    bool stop_ = false;
    std::vector<std::unique_ptr<BlockCodec>> codecs_;
    std::vector<std::thread> workers_;
};

class TraceBlocks {
  public:
    TraceBlocks(const TraceSettings& settings, SpoolHeader& header, std::uint32_t parent_pid,
                const LineFormatter& formatter, const Tracks& tracks);

    // Goes first, before lines are added: 0, or the errno for which a block that is complete is still not
    // written. It must not grow any more.
    int make_way() { return complete_ ? flush() : 0; }
    // The opening and the header come with the first thing there is to say.
    void open();
    // What follows is of this unit, and once it is formatted the unit is read up to `scan`.
    void touch(UnitHeader* unit, std::uint32_t scan) {
        // Only where there is a record: a unit that is written may soon be another thread's.
        TouchedUnits& touched = gathered_.facts.touched;
        if (touched.empty() || touched.back().first != unit) touched.emplace_back(unit, scan);
    }
    void is_read_to(std::uint32_t scan) noexcept { gathered_.facts.touched.back().second = scan; }
    ByteBuffer& text() noexcept { return gathered_.text; }
    BlockReach& reach() noexcept { return gathered_.reach; }
    PartIndex& index() noexcept { return index_; }
    void count(Kind kind) noexcept { ++lines()[static_cast<std::size_t>(kind)]; }
    void count_open_span() noexcept { ++lines()[0]; }
    void count_samples(std::uint64_t samples) noexcept { lines()[samples_slot] += samples; }
    // Metadata that every part tells.
    void keep_fact(std::uint32_t node, std::string_view name, std::string_view line) noexcept;
    // One that an earlier part may have told.
    void know_fact(std::uint32_t node, std::string_view name, std::string_view line);

    bool full() const noexcept { return gathered_.text.size() >= settings_.block_bytes; }
    bool empty() const noexcept { return gathered_.text.size() == 0; }
    // The gathered lines are a block. 0, or the errno for which this block or one before it is not written.
    int end_block();
    // Writes what is gathered. 0, or the errno of the failure: the block is kept for the next try.
    int flush();
    // Behind all that is written, until something else is.
    int put_tail(std::string_view lines);
    // `open`: what is told of them as it stands at the end of the file.
    int finish(const Ending& ending, OpenLines& open);
    // What `finish` has written, once; nullptr where it has not.
    std::unique_ptr<WrittenEnd> take_written_end() noexcept { return std::move(written_end_); }
    // Goes on behind what the spool's marks tell of, and adds what stands there to `tail`. 0 or an errno.
    int resume(std::string* tail);

    TraceStage stage() const noexcept { return gathered_.facts.stage; }
    void enter(TraceStage stage) noexcept;
    // Lines of events in the files.
    std::uint64_t lines_written() const noexcept;
    // Lines of events in files that somebody removed or cut while they were written.
    std::uint64_t spoilt_lines() const noexcept { return spoilt_lines_; }
    TraceParts& parts() noexcept { return parts_; }
    const TraceParts& parts() const noexcept { return parts_; }
    // This process records: it looks at the clocks of its host now and then, and lines tell of it.
    void look_at_clocks() noexcept { looks_at_clocks_ = true; }
    // Lets other threads, so many at most, compress blocks of records while this one formats the next.
    // What is written is the same. After an error nothing more can be written.
    void compress_ahead(unsigned threads) noexcept;
    // Called with each unit whose records are in the file, after every successful write.
    std::function<void(UnitHeader*, std::uint32_t)> on_durable;

  private:
    // What a part begins with, in front of the block that is gathered.
    struct Head {
        std::size_t plain_bytes = 0;
        std::uint64_t line_breaks = 0;
    };
    struct FirstBlock {
        std::string bytes;
        Head head;
        std::size_t facts;
    };
    struct Fact {
        std::uint32_t node;
        std::string name, line;
    };

    void begin(ByteBuffer& out, std::uint32_t part) const;
    void tell_clocks_after_a_minute();
    ClockKeeping tell_clocks_at_end(ByteBuffer& out) const;
    int write_oldest();
    // When all formatted lines are written. 0, or an errno where the marks of the trace cannot be kept: a
    // file without an index is whole.
    int write_index(bool last);
    void tell_durable(const TouchedUnits& touched) const;
    std::string_view block() const noexcept {
        return gathered_.compressed.empty() ? gathered_.text.view() : gathered_.compressed;
    }
    bool part_is_full() const noexcept;
    int next_part();
    FirstBlock first_of_next() const;
    void put_first(FirstBlock first) noexcept;
    bool spoilt() const noexcept;
    void give_up_part() noexcept;
    void forget_lines(const LineCounts& written) noexcept;
    // Formatted lines of this part by Kind, written or not.
    LineCounts& lines() noexcept { return gathered_.facts.lines; }

    const TraceSettings& settings_;
    SpoolHeader& header_;
    const std::uint32_t parent_pid_;
    const LineFormatter& formatter_;
    const Tracks& tracks_;
    std::unique_ptr<BlockCodec> codec_;
    TraceParts parts_;
    PartIndex index_;
    GatheredBlock gathered_;
    bool complete_ = false;  // what is gathered, until it is written
    Head head_;
    bool opened_ = false;
    bool looks_at_clocks_ = false;
    std::vector<Fact> facts_;
    std::size_t facts_landed_ = 0;  // of them, in a part that is written
    std::uint64_t spoilt_lines_ = 0;
    unsigned threads_ahead_ = 0;
    std::unique_ptr<BlocksAhead> ahead_;  // from the first full block on
    GatheredBlock spare_;                 // one that is written: its memory is used again
    std::unique_ptr<WrittenEnd> written_end_;
};

}  // namespace dftrace
