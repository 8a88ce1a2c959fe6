// A kernel that does not map pages for writing in one call, for as long as a test wants.
#pragma once

#include <cstdint>

// While it lives, whoever asks for that is told that there is no such call.
class OlderKernel {
  public:
    OlderKernel();
    ~OlderKernel();
    OlderKernel(const OlderKernel&) = delete;
    OlderKernel& operator=(const OlderKernel&) = delete;

    std::uint64_t refused() const noexcept;  // so often
};
