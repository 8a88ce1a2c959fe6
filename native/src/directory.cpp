// Calls that take a directory's descriptor in place of its name.
#include "dftrace/directory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
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

// O_PATH: who may write to a directory may not always list it.
Directory::Directory(const std::string& path) {
    if (const int error = file_.open_directory(path))
        throw std::system_error(error, std::generic_category(), path);
}

int Directory::look(const char* name, struct stat& info) const noexcept {
    return fstatat(descriptor(), name, &info, AT_SYMLINK_NOFOLLOW) == 0 ? 0 : errno;
}

int Directory::remove(const char* name) const noexcept {
    return unlinkat(descriptor(), name, 0) == 0 ? 0 : errno;
}

void Directory::remove_if(const char* name, const struct stat& file) const noexcept {
    struct stat info;
    if (look(name, info) == 0 && info.st_dev == file.st_dev && info.st_ino == file.st_ino) remove(name);
}

}  // namespace dftrace
