// The tests' own `pread`, which the linker takes for that of the system.
#include "between_reads.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace {

thread_local off_t awaited = -1;
thread_local std::function<void()> then;

}  // namespace

BetweenReads::BetweenReads(off_t place, std::function<void()> happens) {
    awaited = place;
    then = std::move(happens);
}

BetweenReads::~BetweenReads() {
    awaited = -1;
    then = nullptr;
}

extern "C" ssize_t pread(int fd, void* into, size_t bytes, off_t at) {
    if (at == awaited) {
        awaited = -1;
        then();
    }
    return static_cast<ssize_t>(syscall(SYS_pread64, fd, into, bytes, at));
}
