// A directory for one test, settings for runs in it, and child processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dftrace/spool/settings.hpp"

// Made under the system's temporary directory, removed with all that is in it.
class ScratchDir {
  public:
    ScratchDir();
    ~ScratchDir();
    ScratchDir(const ScratchDir&) = delete;
    ScratchDir& operator=(const ScratchDir&) = delete;

    const std::string& path() const noexcept { return path_; }
    std::string file(const std::string& name) const { return path_ + "/" + name; }
    // Paths of the files whose names end so, sorted.
    std::vector<std::string> files(const std::string& suffix = "") const;
    // The one file that ends so; the test stops if there is not exactly one.
    std::string only(const std::string& suffix) const;

    // Settings of a run whose trace and spool lie here.
    dftrace::TraceSettings settings() const;

  private:
    std::string path_;
};

// Runs `body` in a forked child, which then ends at once. True if all its checks held.
bool in_child(const std::function<void()>& body);
// Status of a child that has ended, waited for.
int wait_for(pid_t child);

// Starts the program that records until it is killed (victim.cpp) with these arguments.
pid_t start_victim(const std::vector<std::string>& arguments);

// The number of file descriptors that this process has open.
std::size_t open_descriptors();

// Tests that count records do fewer where a sanitizer or valgrind makes each of them slow.
std::uint64_t scaled(std::uint64_t count);
