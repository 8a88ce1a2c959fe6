// The tests' own `madvise`, which the linker takes for that of the system.
#include "older_kernel.hpp"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

namespace {

// As the kernel has it since 5.14, whatever the headers know.
constexpr int populate_write = 23;

std::atomic<bool> older{false};
std::atomic<std::uint64_t> refusals{0};

}  // namespace

OlderKernel::OlderKernel() {
    refusals.store(0);
    older.store(true);
}

OlderKernel::~OlderKernel() { older.store(false); }

std::uint64_t OlderKernel::refused() const noexcept { return refusals.load(); }

extern "C" int madvise(void* from, size_t bytes, int advice) noexcept {
    if (advice == populate_write && older.load()) {
        refusals.fetch_add(1);
        errno = EINVAL;
        return -1;
    }
    return static_cast<int>(syscall(SYS_madvise, from, bytes, advice));
}
