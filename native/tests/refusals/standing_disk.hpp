// A disk that does not answer for as long as a test wants.
#pragma once

#include <string>

// While it lives, whoever writes to a trace in `directory` waits.
class StandingDisk {
  public:
    explicit StandingDisk(const std::string& directory);
    ~StandingDisk();
    StandingDisk(const StandingDisk&) = delete;
    StandingDisk& operator=(const StandingDisk&) = delete;

    void wait_for_a_writer() const;  // until one waits
};
