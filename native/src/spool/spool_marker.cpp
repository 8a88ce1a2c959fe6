// Writing the marker.
#include "dftrace/spool/spool_marker.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "dftrace/spool/spool.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"

namespace dftrace {

std::string marker_place() {
    const ProcessIdentity self = ProcessIdentity::self();
    return self.boot_id + " " + std::to_string(self.pid_namespace);
}

namespace {

bool put(const HeldFile& file, const std::string& text) {
    return ::write(file.descriptor(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// For a file system where none is without a name: readers know that one that does not end is not finished.
// 0 or an errno.
int make_in_place(const std::string& path, const std::string& text) {
    HeldFile file;
    if (const int error = file.create_new(path, O_WRONLY)) return error;
    if (put(file, text)) return 0;
    unlink(path.c_str());
    return ENOSPC;
}

constexpr char complete[] = "complete\n";

bool append_complete(const HeldFile& marker) {
    constexpr ssize_t bytes = sizeof complete - 1;
    return ::write(marker.descriptor(), complete, bytes) == bytes;
}

// A marker appears with all that it says, and never empty: its process may end at any moment.
std::string make(const TraceSettings& settings, const std::string& spool) {
    const std::string stem = file_stem(settings, static_cast<std::uint32_t>(getpid()));
    const std::string text = spool + "\n" + marker_place() + "\n";
    HeldFile nameless;
    const bool whole = nameless.create_nameless(directory_of(stem), O_WRONLY) == 0 && put(nameless, text);
    for (int attempt = 0; attempt < 1000; ++attempt) {
        const std::string path = stem + (attempt ? "-" + std::to_string(attempt) : "") + marker_suffix;
        int error = whole ? nameless.take_name(path) : ENOTSUP;
        if (error && error != EEXIST) error = make_in_place(path, text);
        if (!error) return path;
        if (error != EEXIST) break;
    }
    return {};
}

}  // namespace

void SpoolMarker::write(const TraceSettings& settings, const std::string& spool) noexcept {
    if (written()) return;
    try {
        path_ = make(settings, spool);
        if (written()) lstat(path_.c_str(), &made_);
    } catch (const std::bad_alloc&) {
        path_.clear();  // there may be memory the next time
    }
}

bool SpoolMarker::tell_complete(const std::string& trace) noexcept {
    if (!written()) return false;
    try {
        const std::string moved = directory_of(trace) + "/" + name_in_directory(path_);
        for (const std::string& path : {path_, moved}) {
            HeldFile marker;
            if (marker.open(path, O_WRONLY | O_APPEND) != 0 || !marker.is(made_)) continue;
            path_ = path;
            return append_complete(marker);
        }
        return false;
    } catch (const std::bad_alloc&) {
        return false;  // it cannot be said without memory
    }
}

void SpoolMarker::remove() noexcept {
    struct stat info;
    if (written() && lstat(path_.c_str(), &info) == 0 && info.st_dev == made_.st_dev &&
        info.st_ino == made_.st_ino)
        unlink(path_.c_str());
    path_.clear();
}

bool tell_complete(const Directory& directory, const std::string& marker, std::uint32_t owner) noexcept {
    HeldFile file;
    struct stat info;
    return directory.look(marker.c_str(), info) == 0 && S_ISREG(info.st_mode) && info.st_uid == owner &&
           info.st_nlink == 1 && file.open(marker, O_WRONLY | O_APPEND, directory.descriptor()) == 0 &&
           file.is(info) && append_complete(file);
}

}  // namespace dftrace
