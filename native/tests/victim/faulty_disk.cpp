// The disk of the victim: it fails, or kills who uses it, as the environment says.
//
// DFTRACE_KILL=before:3, inside:3 or after:3 kills at the third write to a trace file: before it, with
// half of it done, or just after it. gone:3 and cut:3 remove the file just after that, or cut it, and kill
// nobody. create:3 and remove:3 kill before the third trace file is made, or
// removed, and created:3 and removed:3 right after that.
//
// DFTRACE_DISK_LIMIT=9000 has room for so many bytes in all trace files together; 9000:2 gets room again
// after two calls that failed.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

struct Plan {
    std::string moment;
    int number = 0;
    std::int64_t limit = -1;
    int failures = -1;  // after so many there is room again; never if negative
};

// Split at the colon.
const Plan& plan() {
    static const Plan the_plan = [] {
        Plan p;
        if (const char* kill_at = std::getenv("DFTRACE_KILL")) {
            const std::string text = kill_at;
            p.moment = text.substr(0, text.find(':'));
            p.number = std::stoi(text.substr(text.find(':') + 1));
        }
        if (const char* full_at = std::getenv("DFTRACE_DISK_LIMIT")) {
            const std::string text = full_at;
            p.limit = std::stoll(text);
            if (const auto colon = text.find(':'); colon != std::string::npos)
                p.failures = std::stoi(text.substr(colon + 1));
        }
        return p;
    }();
    return the_plan;
}

bool is_trace(std::string_view path) { return path.find(".pfw") != std::string_view::npos; }

bool is_trace(int fd) {
    char path[4096];
    const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
    return length > 0 && is_trace(std::string_view(path, static_cast<std::size_t>(length)));
}

[[noreturn]] void die() {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

std::atomic<std::int64_t> bytes_used{0};
std::atomic<int> failed{0};

// How many of `bytes` the disk takes now.
std::size_t room_for(std::size_t bytes) {
    const Plan& p = plan();
    if (p.limit < 0 || (p.failures >= 0 && failed.load() >= p.failures)) return bytes;
    const std::int64_t left = p.limit - bytes_used.load();
    return left <= 0 ? 0 : std::min(bytes, static_cast<std::size_t>(left));
}

ssize_t plain_write(int fd, const void* data, std::size_t bytes) {
    const auto wrote = static_cast<ssize_t>(syscall(SYS_write, fd, data, bytes));
    if (wrote > 0) bytes_used += wrote;
    return wrote;
}

}  // namespace

extern "C" ssize_t write(int fd, const void* data, size_t bytes) {
    static std::atomic<int> writes{0};
    if (!is_trace(fd)) return static_cast<ssize_t>(syscall(SYS_write, fd, data, bytes));
    const std::size_t room = room_for(bytes);
    if (room == 0) {
        ++failed;
        errno = ENOSPC;
        return -1;
    }
    const std::string& moment = plan().moment;
    const bool chosen = (moment == "before" || moment == "inside" || moment == "after") &&
                        writes.fetch_add(1) + 1 == plan().number;
    const bool spoils = (moment == "gone" || moment == "cut") && writes.fetch_add(1) + 1 == plan().number;
    if (spoils) {
        const ssize_t wrote = plain_write(fd, data, room);
        if (moment == "cut") {
            syscall(SYS_ftruncate, fd, off_t{10});
        } else {
            char path[4096] = "";
            static_cast<void>(
                readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1));
            syscall(SYS_unlinkat, AT_FDCWD, path, 0);
        }
        return wrote;
    }
    if (!chosen) return plain_write(fd, data, room);
    if (moment == "inside") plain_write(fd, data, room / 2);
    if (moment == "after") plain_write(fd, data, room);
    die();
}

extern "C" int ftruncate(int fd, off_t bytes) noexcept {
    struct stat info {};
    if (is_trace(fd) && fstat(fd, &info) == 0) bytes_used -= info.st_size - bytes;
    return static_cast<int>(syscall(SYS_ftruncate, fd, bytes));
}

extern "C" int openat(int directory, const char* path, int flags, ...) {
    static std::atomic<int> creations{0};
    std::va_list rest;
    va_start(rest, flags);
    const int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, int) : 0;
    va_end(rest);
    const std::string& moment = plan().moment;
    const bool chosen = (moment == "create" || moment == "created") && (flags & O_CREAT) && is_trace(path) &&
                        creations.fetch_add(1) + 1 == plan().number;
    if (chosen && moment == "create") die();
    const auto fd = static_cast<int>(syscall(SYS_openat, directory, path, flags, mode));
    if (chosen) die();
    return fd;
}

extern "C" int unlinkat(int directory, const char* path, int flags) noexcept {
    static std::atomic<int> removals{0};
    const std::string& moment = plan().moment;
    const bool chosen = (moment == "remove" || moment == "removed") && is_trace(path) &&
                        removals.fetch_add(1) + 1 == plan().number;
    if (chosen && moment == "remove") die();
    const auto result = static_cast<int>(syscall(SYS_unlinkat, directory, path, flags));
    if (chosen) die();
    return result;
}
