// Reading memory of this process that another thread may free meanwhile: what is not there is no fault.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace dftrace {

struct MemoryPart {
    void* to;
    std::uint64_t from;
    std::size_t size;
};

// By which call of the kernel. A sandbox may refuse the first, a process that changed its user the second.
enum class MemoryWay { none, vm_readv, mem_file, pipe };

// The way that works here, tried in that order from `first` on: it reads what is there, and says so of what
// is not.
MemoryWay find_memory_way(MemoryWay first = MemoryWay::vm_readv) noexcept;

// One round of reading. Descriptors are opened for it alone, since a program may close all that it does not
// know, and give their numbers to files of its own.
class OwnMemory {
  public:
    explicit OwnMemory(MemoryWay way) noexcept;
    ~OwnMemory();
    OwnMemory(const OwnMemory&) = delete;
    OwnMemory& operator=(const OwnMemory&) = delete;

    bool is_open() const noexcept { return open_; }
    // All parts, or false: then what stands in them is worth nothing.
    bool read(std::span<const MemoryPart> parts) noexcept;
    bool read(void* to, std::uint64_t from, std::size_t size) noexcept {
        const MemoryPart part{to, from, size};
        return read({&part, 1});
    }
    template <typename T>
    bool read(T& to, std::uint64_t from) noexcept {
        return read(&to, from, sizeof to);
    }

  private:
    bool read_at_once(std::span<const MemoryPart> parts) noexcept;
    bool read_one(const MemoryPart& part) noexcept;

    MemoryWay way_;
    pid_t self_;
    int from_ = -1;  // the file of memory, or the end of the pipe that is read
    int into_ = -1;
    bool open_ = false;
};

}  // namespace dftrace
