// Opening out of the way of others, and recognising what was opened.
#include "dftrace/system/held_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

#include "dftrace/system/file_size_signal.hpp"

namespace dftrace {

namespace {

// The first number that no open() of the program gets as long as lower ones are free: should ours be closed
// behind our back, it is not given away the next moment. Not higher than needed, since the kernel keeps, and
// copies at each fork, a table up to the highest.
int first_out_of_the_way() noexcept {
    constexpr rlim_t high_enough = 4096;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
    return static_cast<int>(std::min(limit.rlim_cur, high_enough) / 4 * 3);
}

// Of this thread: one may have a table of numbers for itself (unshare, close_range). Without memory, since
// who makes or ends a file may have none.
struct LinkTo {
    explicit LinkTo(int number) noexcept {
        std::snprintf(text, sizeof text, "/proc/thread-self/fd/%d", number);
    }
    char text[40];
};

// What takes room on every file system.
int write_zeros(int file, std::size_t from, std::size_t bytes) noexcept {
    static constexpr char zeros[1 << 16] = {};
    while (bytes > 0) {
        const ssize_t put = pwrite(file, zeros, std::min(bytes, sizeof zeros), static_cast<off_t>(from));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? errno : ENOSPC;
        from += static_cast<std::size_t>(put);
        bytes -= static_cast<std::size_t>(put);
    }
    return 0;
}

}  // namespace

int reserve_room(int file, std::size_t from, std::size_t bytes) noexcept {
    const FileSizeSignalHeld held;
    int error = 0;
    // Only some kernels go on by themselves after a signal, and traced programs have timers.
    do error = posix_fallocate(file, static_cast<off_t>(from), static_cast<off_t>(bytes));
    while (error == EINTR);
    // The file system has no such call, or a container's rules forbid it.
    const bool no_such_call =
        error == EPERM || error == EACCES || error == ENOSYS || error == EOPNOTSUPP || error == EINVAL;
    return no_such_call ? write_zeros(file, from, bytes) : error;
}

int reserve_room_in_use(int file, std::size_t from, std::size_t bytes) noexcept {
    const FileSizeSignalHeld held;
    int done = 0;
    do done = ::fallocate(file, 0, static_cast<off_t>(from), static_cast<off_t>(bytes));
    while (done != 0 && errno == EINTR);
    return done == 0 ? 0 : errno;
}

int FileIdentity::look_at(const char* path, int directory) const noexcept {
    struct stat info;
    if (fstatat(directory, path, &info, AT_SYMLINK_NOFOLLOW) == 0) return is(info) ? 0 : ENOENT;
    // A directory that is not held open is none.
    return errno == ENOTDIR || errno == EBADF ? ENOENT : errno;
}

int FileIdentity::remove_at(const char* path, int directory) const noexcept {
    if (const int unseen = look_at(path, directory)) return unseen;
    return ::unlinkat(directory, path, 0) == 0 ? 0 : errno;
}

bool HeldFile::leads_here(int number) const noexcept {
    struct stat info;
    return number >= 0 && fstat(number, &info) == 0 && file_.is(info);
}

int HeldFile::create_new(const std::string& path, int access, int directory) noexcept {
    const int error =
        hold(::openat(directory, path.c_str(), access | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (error == EBADF) ::unlinkat(directory, path.c_str(), 0);  // made, and its number closed at once
    return error ? error : let_owner_in();
}

int HeldFile::open(const std::string& path, int access, int directory) noexcept {
    // Not blocking: a pipe of that name would wait for its other end.
    return hold(::openat(directory, path.c_str(), access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
}

int HeldFile::open_directory(const std::string& path) noexcept {
    return hold(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
}

int HeldFile::open_same(int number) noexcept { return hold(fcntl(number, F_DUPFD_CLOEXEC, 0)); }

int HeldFile::create_nameless(const std::string& directory, int access) noexcept {
    const int error = hold(::open(directory.c_str(), access | O_TMPFILE | O_CLOEXEC, 0600));
    return error ? error : let_owner_in();
}

// A umask may keep a file from its owner as well, who could not complete the trace.
int HeldFile::let_owner_in() const noexcept {
    struct stat info;
    if (fstat(descriptor(), &info) == 0 && (info.st_mode & 0600) != 0600)
        static_cast<void>(fchmod(descriptor(), 0600));  // a file system without modes is no reason to fail
    return 0;
}

int HeldFile::take_name(const std::string& path) const noexcept {
    if (::linkat(AT_FDCWD, LinkTo(descriptor()).text, AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0)
        return errno;
    if (lies_at(path.c_str())) return 0;
    // Closed, and given away, this very moment: somebody else's file has got the name as well.
    ::unlink(path.c_str());
    return EBADF;
}

int HeldFile::hold(int number) noexcept {
    number_ = number;
    if (number_ < 0) return errno;
    struct stat info;
    if (fstat(number_, &info) != 0) {
        number_ = -1;
        return EBADF;
    }
    file_ = FileIdentity(info);
    // Refused where there are no numbers that high: then it stays where it is.
    const int moved = fcntl(number_, F_DUPFD_CLOEXEC, first_out_of_the_way());
    if (moved < 0) return 0;
    if (leads_here(number_)) ::close(number_);
    number_ = moved;
    if (leads_here(moved)) return 0;
    // Closed, and given away, this very moment: what was moved is somebody else's.
    ::close(std::exchange(number_, -1));
    return EBADF;
}

int HeldFile::open_again(const std::string& path, int access, int directory) noexcept {
    HeldFile found;
    if (const int error = found.open(path, access, directory)) return error;
    if (!leads_here(found.number_)) {
        if (found.lies_at(path.c_str(), directory)) return ESTALE;
        // Not the file of that name either: the program has closed the number, and got it, just now.
        found.file_ = {};
        return EBADF;
    }
    number_ = std::exchange(found.number_, -1);  // what it was leads elsewhere
    return 0;
}

int HeldFile::descriptor() const noexcept {
    if (leads_here(number_)) return number_;
    errno = EBADF;
    return -1;
}

bool HeldFile::has_no_name() const noexcept {
    struct stat info;
    return fstat(descriptor(), &info) == 0 && info.st_nlink == 0;
}

std::string HeldFile::path_now() const noexcept {
    char path[4096];
    try {
        const ssize_t bytes = readlink(LinkTo(descriptor()).text, path, sizeof path);
        return {path, bytes < 0 ? 0 : static_cast<std::size_t>(bytes)};
    } catch (const std::bad_alloc&) {
        return {};
    }
}

void HeldFile::close() noexcept {
    if (const int ours = descriptor(); ours >= 0) ::close(ours);
    number_ = -1;
    file_ = {};
}

Reason reason_of(int error) noexcept {
    Reason reason;
    struct rlimit limit;
    const bool limited =
        error == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (limited)
        std::snprintf(reason.text, sizeof reason.text,
                      "%s: this process may write files of %llu bytes at most (RLIMIT_FSIZE, ulimit -f)",
                      std::strerror(error), static_cast<unsigned long long>(limit.rlim_cur));
    else
        std::snprintf(reason.text, sizeof reason.text, "%s", std::strerror(error));
    return reason;
}

}  // namespace dftrace
