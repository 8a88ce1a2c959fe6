// The drain thread's view of one thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "dftrace/recording/thread.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/writing/tracks.hpp"

namespace dftrace {

struct Source {
    ThreadBlock* block;
    UnitHeader* unit;        // that comes next
    std::uint32_t scan = 0;  // records of it that are formatted
    UnitHeader* limit_unit = nullptr;
    std::uint32_t limit = 0;
    Track track;
    Thread* thread;
    bool over = false;  // ended before this pass looked
    // Ended, and a flight recorder let go of all its records: its units are no longer its own.
    std::atomic<bool> overwritten{false};
};

}  // namespace dftrace
