// The tests' own `posix_fallocate`, which the linker takes for that of the system.
#include "standing_room.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>

namespace {

// Asked without the lock, which a process that is forked now may never get.
thread_local bool stands_next = false;
std::mutex mutex;
std::condition_variable changed;
bool let_on = true;
int standing = 0;

}  // namespace

StandingRoom::StandingRoom() {
    const std::lock_guard lock(mutex);
    let_on = false;
}

StandingRoom::~StandingRoom() {
    std::unique_lock lock(mutex);
    let_on = true;
    changed.notify_all();
    changed.wait(lock, [] { return standing == 0; });
}

void StandingRoom::stand_here() const { stands_next = true; }

void StandingRoom::wait_for_a_thread() const {
    std::unique_lock lock(mutex);
    changed.wait(lock, [] { return standing > 0; });
}

extern "C" int posix_fallocate(int fd, off_t from, off_t bytes) {
    if (stands_next) {
        stands_next = false;
        std::unique_lock lock(mutex);
        ++standing;
        changed.notify_all();
        changed.wait(lock, [] { return let_on; });
        --standing;
        changed.notify_all();
    }
    if (syscall(SYS_fallocate, fd, 0, from, bytes) == 0) return 0;
    if (errno != EOPNOTSUPP) return errno;
    struct stat info {};
    if (fstat(fd, &info) != 0) return errno;
    return info.st_size >= from + bytes || ftruncate(fd, from + bytes) == 0 ? 0 : errno;
}
