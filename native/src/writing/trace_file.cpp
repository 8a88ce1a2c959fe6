// Exclusive creation and all-or-nothing appends.
#include "dftrace/writing/trace_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

namespace dftrace {

void TraceFile::close() noexcept {
    file_.close();
    bytes_ = 0;
    tail_ = false;
}

std::string TraceFile::place_of(const std::string& path) const {
    return directory_ ? name_in_directory(path) : path;
}

int TraceFile::create(const std::string& stem, const std::string& suffix,
                      const std::function<int(const std::string&)>& announce, std::uint32_t mode) {
    for (int attempt = 0; attempt < 100000; ++attempt) {
        path_ = attempt ? stem + "-" + std::to_string(attempt) + suffix : stem + suffix;
        if (announce)
            if (const int error = announce(path_)) return error;
        const int error = file_.create_new(place_of(path_), O_WRONLY, directory());
        // A file system that has no modes is no reason to go without a trace.
        if (!error && mode != 0600) static_cast<void>(fchmod(file_.descriptor(), mode));
        if (error != EEXIST) return error;
    }
    return EEXIST;
}

int TraceFile::resume(const std::string& path, std::uint64_t bytes, std::optional<std::uint32_t> owner,
                      std::string* tail) {
    path_ = path;
    if (const int error = file_.open(place_of(path), tail ? O_RDWR : O_WRONLY, directory())) return error;
    bytes_ = bytes;
    struct stat info;
    int error = fstat(file_.descriptor(), &info) != 0 ? errno : 0;
    if (!error && owner && info.st_uid != *owner) error = EPERM;
    if (!error && owner && S_ISREG(info.st_mode) && info.st_nlink > 1) error = EMLINK;
    // A file that is shorter is not the one that was written: growing it would put zeros there.
    if (!error && (!S_ISREG(info.st_mode) || static_cast<std::uint64_t>(info.st_size) < bytes))
        error = EINVAL;
    if (!error && tail) error = read_behind(static_cast<std::uint64_t>(info.st_size), *tail);
    if (!error) error = take_back();
    if (error) close();
    return error;
}

int TraceFile::read_behind(std::uint64_t size, std::string& tail) const {
    tail.clear();
    if (size - bytes_ > max_tail_bytes) return 0;
    tail.resize(static_cast<std::size_t>(size - bytes_));
    for (std::size_t done = 0; done < tail.size();) {
        const ssize_t got = pread(file_.descriptor(), tail.data() + done, tail.size() - done,
                                  static_cast<off_t>(bytes_ + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) tail.resize(done);  // it was cut meanwhile
        done += static_cast<std::size_t>(got);
    }
    return 0;
}

// Is tried again where it fails.
int TraceFile::take_back() {
    if (ftruncate(file_.descriptor(), static_cast<off_t>(bytes_)) != 0 ||
        lseek(file_.descriptor(), static_cast<off_t>(bytes_), SEEK_SET) < 0)
        return errno;
    tail_ = false;
    return 0;
}

// The program has closed the file: there may be a piece of the write that this interrupted.
int TraceFile::open_again() {
    try {
        if (const int error = file_.open_again(place_of(path_), O_WRONLY, directory())) return error;
    } catch (const std::bad_alloc&) {
        return ENOMEM;  // whoever announced the write takes that back
    }
    struct stat info;
    if (fstat(file_.descriptor(), &info) != 0) return errno;
    if (static_cast<std::uint64_t>(info.st_size) < bytes_) return EINVAL;
    tail_ = true;
    return 0;
}

bool TraceFile::spoilt() const noexcept {
    struct stat info;
    return fstat(file_.descriptor(), &info) == 0 &&
           (info.st_nlink == 0 || static_cast<std::uint64_t>(info.st_size) < bytes_);
}

int TraceFile::append(std::string_view block) {
    const int error = put(block);
    if (!error) bytes_ += block.size();
    return error;
}

int TraceFile::put_tail(std::string_view block) {
    const int error = put(block);
    if (!error) tail_ = !block.empty();
    return error;
}

int TraceFile::cut_tail() {
    if (!tail_) return 0;
    return put({});
}

int TraceFile::put(std::string_view block) {
    int error = EBADF;
    // It may be closed at this very moment, but not for ever.
    for (int attempt = 0; error == EBADF && attempt < 8; ++attempt) error = write_all(block);
    return error;
}

int TraceFile::write_all(std::string_view block) {
    if (file_.descriptor() < 0)
        if (const int error = open_again()) return error;
    if (tail_)
        if (const int error = take_back()) return error;
    std::size_t done = 0;
    while (done < block.size()) {
        const ssize_t wrote = write(file_.descriptor(), block.data() + done, block.size() - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0) {
            const int error = errno;
            // A torn gzip member in the middle would cost everything behind it.
            tail_ = done != 0;
            if (tail_) take_back();
            return error;
        }
        done += static_cast<std::size_t>(wrote);
    }
    return 0;
}

}  // namespace dftrace
