// Calls that take a directory's descriptor in place of its name.
#include "dftrace/system/directory.hpp"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <new>
#include <string_view>
#include <system_error>

namespace dftrace {

namespace {

bool holds(std::string_view line, std::uintptr_t address) noexcept {
    std::uintptr_t first = 0, end = 0;
    const char* const last = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), last, first, 16);
    return dash.ptr != last && std::from_chars(dash.ptr + 1, last, end, 16).ec == std::errc() &&
           first <= address && address < end;
}

// The sixth field, in which a line break is written as its number.
std::string path_of(std::string_view line) {
    const auto slash = line.find('/');
    std::string path(line.substr(slash == line.npos ? line.size() : slash));
    constexpr std::string_view line_break = "\\012";
    for (auto at = path.find(line_break); at != path.npos; at = path.find(line_break, at + 1))
        path.replace(at, line_break.size(), "\n");
    return path;
}

}  // namespace

std::string directory_of(const std::string& path) {
    const auto slash = path.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

const char* name_in_directory(const std::string& path) noexcept {
    const auto slash = path.rfind('/');
    return path.c_str() + (slash == std::string::npos ? 0 : slash + 1);
}

bool is_network_file_system(const std::string& directory) {
    struct statfs info;
    if (statfs(directory.c_str(), &info) != 0) return false;
    constexpr long network[] = {0x6969 /* NFS */,      0x0BD00BD0 /* Lustre */, 0xFF534D42 /* CIFS */,
                                0xFE534D42 /* SMB2 */, 0x47504653 /* GPFS */,   0x65735546 /* FUSE */,
                                0x00C36400 /* Ceph */, 0x19830326 /* BeeGFS */, 0x013111A8 /* IBRIX */};
    return std::find(std::begin(network), std::end(network), info.f_type) != std::end(network);
}

// O_PATH: who may write to a directory may not always list it.
Directory::Directory(const std::string& path) {
    if (const int error = file_.open_directory(path))
        throw std::system_error(error, std::generic_category(), path);
}

Directory::Directory(int descriptor) {
    if (const int error = file_.open_same(descriptor))
        throw std::system_error(error, std::generic_category(), "the directory that is held open");
}

int Directory::look(const char* name, struct stat& info) const noexcept {
    return fstatat(descriptor(), name, &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

int Directory::remove(const char* name) const noexcept {
    return unlinkat(descriptor(), name, 0) == 0 ? 0 : errno;
}

int Directory::remove_if(const char* name, const struct stat& file) const noexcept {
    struct stat info;
    const int unseen = look(name, info);
    if (unseen) return unseen == ENOENT ? 0 : unseen;
    return info.st_dev == file.st_dev && info.st_ino == file.st_ino ? remove(name) : 0;
}

std::string directory_of_mapping(const void* address) noexcept {
    HeldFile maps;
    if (!address || maps.open("/proc/self/maps", O_RDONLY) != 0) return {};
    try {
        std::string lines;
        char piece[4096];
        for (;;) {
            const ssize_t got = ::read(maps.descriptor(), piece, sizeof piece);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return {};
            lines.append(piece, static_cast<std::size_t>(got));
            std::size_t begin = 0;
            for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n', begin)) {
                const std::string_view line = std::string_view(lines).substr(begin, end - begin);
                if (holds(line, reinterpret_cast<std::uintptr_t>(address))) {
                    const std::string path = path_of(line);
                    return path.empty() ? path : directory_of(path);
                }
                begin = end + 1;
            }
            lines.erase(0, begin);
        }
    } catch (const std::bad_alloc&) {
        return {};
    }
}

void MappedDirectory::open(const std::string& path, const void* mapped) noexcept {
    mapped_ = mapped;
    static_cast<void>(held_.open_directory(path));
}

int MappedDirectory::descriptor() noexcept {
    if (held_.known() && held_.descriptor() < 0) {
        const std::string path = directory_of_mapping(mapped_);
        if (!path.empty()) static_cast<void>(held_.open_again(path, O_PATH | O_DIRECTORY));
    }
    return held_.descriptor();
}

std::string MappedDirectory::path_now() noexcept {
    return descriptor() < 0 ? std::string() : held_.path_now();
}

}  // namespace dftrace
