// Writing the marker.
#include "dftrace/spool/spool_marker.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <utility>

#include "dftrace/spool/spool.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"

namespace dftrace {

std::string marker_place() {
    const ProcessIdentity self = ProcessIdentity::self();
    return self.boot_id + " " + std::to_string(self.pid_namespace);
}

std::string beside_marker(const std::string& marker, const char* suffix) {
    return marker.substr(0, marker.size() - (sizeof marker_suffix - 1)) + suffix;
}

namespace {

// What is written there and has another number, or lies on another device, is a copy.
std::string with_number_of(const HeldFile& file, std::string text) {
    struct stat info;
    if (fstat(file.descriptor(), &info) == 0)
        text += " " + std::to_string(info.st_ino) + " " + std::to_string(info.st_dev);
    return text;
}

bool put(const HeldFile& file, const std::string& begun) {
    const std::string text = with_number_of(file, begun) + "\n";
    return ::write(file.descriptor(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// For a file system where none is without a name: readers know that one that does not end is not finished.
// 0 or an errno.
int make_in_place(HeldFile& file, const std::string& path, const std::string& text) {
    file.close();
    if (const int error = file.create_new(path, O_RDWR)) return error;
    if (put(file, text)) return 0;
    unlink(path.c_str());
    return ENOSPC;
}

constexpr char complete[] = "complete\n";
constexpr std::size_t mapped_bytes = 1;  // the kernel makes a page of it

bool append_complete(const HeldFile& marker) {
    constexpr ssize_t bytes = sizeof complete - 1;
    return ::write(marker.descriptor(), complete, bytes) == bytes;
}

// The path of `file`, made now. A marker appears with all that it says, and never empty: its process may end
// at any moment.
std::string make(HeldFile& file, const TraceSettings& settings, const std::string& spool) {
    const std::string stem = file_stem(settings, static_cast<std::uint32_t>(getpid()));
    const std::string text = spool + "\n" + marker_place();
    const bool whole = file.create_nameless(directory_of(stem), O_RDWR) == 0 && put(file, text);
    for (int attempt = 0; attempt < 1000; ++attempt) {
        std::string path = stem + (attempt ? "-" + std::to_string(attempt) : "") + marker_suffix;
        int error = whole ? file.take_name(path) : ENOTSUP;
        if (error && error != EEXIST) error = make_in_place(file, path, text);
        if (!error) return path;  // moved: without memory it would be there, and nobody know of it
        if (error != EEXIST) break;
    }
    return {};
}

}  // namespace

void SpoolMarker::write(const TraceSettings& settings, const std::string& spool) noexcept {
    if (written()) return;
    try {
        const std::string directory = directory_of(settings.prefix);
        HeldFile file;
        path_ = make(file, settings, spool);
        if (!written()) return;
        made_ = file.identity();
        // Not every file system maps its files.
        void* const mapped = mmap(nullptr, mapped_bytes, PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
        if (mapped != MAP_FAILED) mapped_ = mapped;
        directory_.open(directory, mapped_);
    } catch (const std::bad_alloc&) {
        path_.clear();  // there may be memory the next time
    }
}

bool SpoolMarker::tell_complete() noexcept {
    if (!written()) return false;
    try {
        const std::string name = name_in_directory(path_);
        const std::pair<int, std::string> places[] = {{directory_.descriptor(), name}, {AT_FDCWD, path_}};
        for (const auto& [directory, path] : places) {
            HeldFile marker;
            if (marker.open(path, O_WRONLY | O_APPEND, directory) != 0 || !marker.identity().is(made_))
                continue;
            return append_complete(marker);
        }
        return false;
    } catch (const std::bad_alloc&) {
        return false;  // it cannot be said without memory
    }
}

int SpoolMarker::remove() noexcept {
    if (!written()) return 0;
    const std::pair<int, const char*> places[] = {{directory_.descriptor(), name_in_directory(path_)},
                                                  {AT_FDCWD, path_.c_str()}};
    int error = 0;
    for (const auto& [directory, path] : places) {
        error = made_.remove_at(path, directory);
        if (error != ENOENT) break;
    }
    if (error && error != ENOENT) return error;
    path_.clear();
    abandon();
    return 0;
}

void SpoolMarker::abandon() noexcept {
    directory_.close();
    if (mapped_) munmap(std::exchange(mapped_, nullptr), mapped_bytes);
}

bool tell_complete(const Directory& directory, const std::string& marker, std::uint32_t owner) noexcept {
    HeldFile file;
    struct stat info;
    return directory.look(marker.c_str(), info) == 0 && S_ISREG(info.st_mode) && info.st_uid == owner &&
           info.st_nlink == 1 && file.open(marker, O_WRONLY | O_APPEND, directory.descriptor()) == 0 &&
           file.identity().is(info) && append_complete(file);
}

}  // namespace dftrace
