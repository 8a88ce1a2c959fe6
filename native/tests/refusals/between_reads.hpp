// What happens to a file between two reads of somebody who copies it piece by piece.
#pragma once

#include <sys/types.h>

#include <functional>

// While it lives: before this thread reads at that place of a file, the first time, `happens` is called.
class BetweenReads {
  public:
    BetweenReads(off_t place, std::function<void()> happens);
    ~BetweenReads();
    BetweenReads(const BetweenReads&) = delete;
    BetweenReads& operator=(const BetweenReads&) = delete;
};
