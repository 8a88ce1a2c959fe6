// Exclusive creation and all-or-nothing appends.
#include "dftrace/trace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace dftrace {

TraceFile::~TraceFile() { close(); }

void TraceFile::close() noexcept {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    bytes_ = 0;
    torn_ = false;
}

int TraceFile::create(const std::string& stem, const std::string& suffix,
                      const std::function<void(const std::string&)>& announce) {
    for (int attempt = 0; attempt < 100000; ++attempt) {
        path_ = attempt ? stem + "-" + std::to_string(attempt) + suffix : stem + suffix;
        if (announce) announce(path_);
        fd_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd_ >= 0) return 0;
        if (errno != EEXIST) return errno;
    }
    return EEXIST;
}

int TraceFile::resume(const std::string& path, std::uint64_t bytes, std::optional<std::uint32_t> owner) {
    path_ = path;
    fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd_ < 0) return errno;
    bytes_ = bytes;
    struct stat info;
    int error = fstat(fd_, &info) != 0 ? errno : 0;
    if (!error && owner && info.st_uid != *owner) error = EPERM;
    // A file that is shorter is not the one that was written: growing it would put zeros there.
    if (!error && (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) < bytes))
        error = EINVAL;
    if (!error && (ftruncate(fd_, static_cast<off_t>(bytes)) != 0 ||
                   lseek(fd_, static_cast<off_t>(bytes), SEEK_SET) < 0))
        error = errno;
    if (error) close();
    return error;
}

// Cuts off what a write left that did not come to its end; 0 or an errno, and it is tried again.
int TraceFile::take_back() {
    if (ftruncate(fd_, static_cast<off_t>(bytes_)) != 0 ||
        lseek(fd_, static_cast<off_t>(bytes_), SEEK_SET) < 0)
        return errno;
    torn_ = false;
    return 0;
}

int TraceFile::append(std::string_view block) {
    if (torn_)
        if (const int error = take_back()) return error;
    std::size_t done = 0;
    while (done < block.size()) {
        const ssize_t wrote = write(fd_, block.data() + done, block.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) {
            const int error = errno;
            // A torn gzip member in the middle would cost everything behind it.
            torn_ = done != 0;
            if (torn_) take_back();
            return error;
        }
        done += static_cast<std::size_t>(wrote);
    }
    bytes_ += block.size();
    return 0;
}

}  // namespace dftrace
