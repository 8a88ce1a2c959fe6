// Memory that is refused for as long as a test wants.
#pragma once

#include <cstdint>

// Only in a program that is linked with refused_memory.cpp. While it lives, so many calls of `new` go well,
// on whichever threads, and the ones behind them throw.
class RefusedMemory {
  public:
    explicit RefusedMemory(std::uint64_t granted, std::uint64_t refused = ~std::uint64_t{0});
    ~RefusedMemory();
    RefusedMemory(const RefusedMemory&) = delete;
    RefusedMemory& operator=(const RefusedMemory&) = delete;

    bool came() const noexcept;  // one was refused
};
