// Compression of blocks on threads of its own, while the caller gathers the next ones: for recovery,
// where nobody else needs the processors' time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dftrace/text/byte_buffer.hpp"
#include "dftrace/writing/codec.hpp"
#include "dftrace/writing/trace_parts.hpp"

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

}  // namespace dftrace
