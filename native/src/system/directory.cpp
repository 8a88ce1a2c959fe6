// Calls that take a directory's descriptor in place of its name.
#include "dftrace/system/directory.hpp"

#include <fcntl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <system_error>

namespace dftrace {

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

}  // namespace dftrace
