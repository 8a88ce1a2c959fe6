// The three ways, of which none takes a lock of the interpreter or installs a handler.
#include "dftrace/stacks/own_memory.hpp"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace dftrace {

namespace {

constexpr std::size_t parts_of_a_call = 256;       // of 1,024 that the kernel takes
constexpr std::size_t bytes_of_a_write = 1 << 16;  // what every pipe holds

bool works(MemoryWay way) noexcept {
    OwnMemory memory(way);
    const std::uint64_t good = 0x5354'4143'4b53'2e2e;
    std::uint64_t seen = 0;
    return memory.is_open() && memory.read(seen, reinterpret_cast<std::uint64_t>(&good)) && seen == good &&
           !memory.read(seen, 8);
}

}  // namespace

MemoryWay find_memory_way(MemoryWay first) noexcept {
    constexpr std::array ways{MemoryWay::vm_readv, MemoryWay::mem_file, MemoryWay::pipe};
    const auto at = std::find_if(std::find(ways.begin(), ways.end(), first), ways.end(), works);
    return at == ways.end() ? MemoryWay::none : *at;
}

OwnMemory::OwnMemory(MemoryWay way) noexcept : way_(way), self_(getpid()) {
    if (way == MemoryWay::vm_readv) open_ = true;
    if (way == MemoryWay::mem_file) {
        from_ = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
        open_ = from_ >= 0;
    }
    if (way == MemoryWay::pipe) {
        int ends[2];
        open_ = pipe2(ends, O_NONBLOCK | O_CLOEXEC) == 0;
        if (open_) {
            from_ = ends[0];
            into_ = ends[1];
        }
    }
}

OwnMemory::~OwnMemory() {
    if (from_ >= 0) close(from_);
    if (into_ >= 0) close(into_);
}

bool OwnMemory::read(std::span<const MemoryPart> parts) noexcept {
    if (way_ != MemoryWay::vm_readv)
        return open_ && std::ranges::all_of(parts, [this](const MemoryPart& part) { return read_one(part); });
    for (; parts.size() > parts_of_a_call; parts = parts.subspan(parts_of_a_call))
        if (!read_at_once(parts.first(parts_of_a_call))) return false;
    return read_at_once(parts);
}

bool OwnMemory::read_at_once(std::span<const MemoryPart> parts) noexcept {
    std::array<iovec, parts_of_a_call> to;
    std::array<iovec, parts_of_a_call> from;
    std::size_t wanted = 0;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        to[i] = {parts[i].to, parts[i].size};
        from[i] = {reinterpret_cast<void*>(parts[i].from), parts[i].size};
        wanted += parts[i].size;
    }
    const ssize_t got = process_vm_readv(self_, to.data(), parts.size(), from.data(), parts.size(), 0);
    return got == static_cast<ssize_t>(wanted);
}

bool OwnMemory::read_one(const MemoryPart& part) noexcept {
    if (way_ == MemoryWay::mem_file)
        return pread(from_, part.to, part.size, static_cast<off_t>(part.from)) ==
               static_cast<ssize_t>(part.size);
    auto* to = static_cast<std::byte*>(part.to);
    for (std::size_t done = 0; done < part.size;) {
        const std::size_t some = std::min(part.size - done, bytes_of_a_write);
        const ssize_t put = write(into_, reinterpret_cast<const void*>(part.from + done), some);
        // What came before an address that is not there stands in the pipe, and goes with it.
        if (put <= 0 || ::read(from_, to + done, static_cast<std::size_t>(put)) != put) return false;
        done += static_cast<std::size_t>(put);
    }
    return true;
}

}  // namespace dftrace
