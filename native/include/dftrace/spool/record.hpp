// The fixed-size record that the traced thread writes, and what its fields mean.
#pragma once

#include <atomic>
#include <cstdint>

namespace dftrace {

enum class Kind : std::uint8_t {
    span = 1,
    instant = 2,
    counter = 3,
    flow_out = 4,
    flow_in = 5,
    metadata = 6,
    lane_name = 7,  // `node` is the name of track `lane`; 0 for one that tasks take turns on
    // Samples of the stack of thread `lane`: `level` of them, `args` tells them, `id` is that of the profile
    // and `value` when it began, in microseconds as lines have them.
    profile = 8,
};

// Records that are told as events.
constexpr bool is_event(Kind kind) noexcept { return kind != Kind::lane_name && kind != Kind::profile; }

enum RecordFlag : std::uint8_t {
    has_count = 1,        // `value` is the number of an iterator's item
    overlaps = 2,         // ended while it was not the innermost open span of its thread
    absolute_time = 4,    // start and end are nanoseconds since the epoch, not clock ticks
    unfinished = 8,       // still open when its thread or the run ended; `end` is meaningless
    begins_profile = 16,  // the first of its profile
};

// 64 bytes, one cache line. Written whole, then published by the unit's count.
struct Record {
    std::uint64_t start;
    std::uint64_t end;
    std::uint64_t id;
    std::uint64_t parent;  // id of the enclosing span, 0 for none
    std::uint32_t node;    // number of name and category
    std::uint32_t args;    // number of the snapshot of arguments, 0 for none
    std::uint32_t error;   // number of the type of the exception that ended the span, 0 for none
    std::uint32_t lane;    // synthetic track, 0 for the thread's own
    std::uint64_t value;   // item count or flow id
    std::uint16_t level;   // 1 for an outermost span
    Kind kind;
    std::uint8_t flags;
    std::uint32_t reserved;
};
static_assert(sizeof(Record) == 64);

// The snapshot of an open span. Its thread stores it and moves it along with the span; the drain thread
// looks at it meanwhile.
class SharedNumber {
  public:
    SharedNumber(std::uint32_t number = 0) noexcept : number_(number) {}
    SharedNumber(const SharedNumber& other) noexcept : number_(other.get()) {}
    SharedNumber& operator=(const SharedNumber& other) noexcept {
        number_.store(other.get(), std::memory_order_release);
        return *this;
    }
    operator std::uint32_t() const noexcept { return get(); }

  private:
    std::uint32_t get() const noexcept { return number_.load(std::memory_order_acquire); }
    std::atomic<std::uint32_t> number_;
};

// One entry of a thread's stack of open spans, readable from another process.
struct OpenSpan {
    std::uint64_t id;
    std::uint64_t start;
    std::uint64_t parent;
    std::uint32_t node;
    SharedNumber args;
    std::uint32_t lane;
    std::uint16_t level;
    std::uint16_t live;  // 0 once it has ended (task slots are reused, not popped)
};
static_assert(sizeof(OpenSpan) == 40);

// What went wrong in a process, and what tracing cost: the counts of the footer.
struct Losses {
    std::uint64_t dropped = 0;
    std::uint64_t waits = 0;
    std::uint64_t unmatched_stops = 0;
    std::uint64_t args_sanitised = 0;
    std::uint64_t drain_cpu_us = 0;
};

}  // namespace dftrace
