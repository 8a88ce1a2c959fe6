// A directory that is held open: what is made, read or removed in it is in it, whatever becomes of its name.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "dftrace/system/held_file.hpp"

namespace dftrace {

// What stands before the last slash of a path, and what stands behind it.
std::string directory_of(const std::string& path);
const char* name_in_directory(const std::string& path) noexcept;
// Other hosts may make files there, and a server may be away.
bool is_network_file_system(const std::string& directory);

class Directory {
  public:
    // Opens it; links that lead to it are followed. Throws std::system_error.
    explicit Directory(const std::string& path);
    // One that somebody else holds open. Throws std::system_error.
    explicit Directory(int descriptor);
    Directory(const Directory&) = delete;
    Directory& operator=(const Directory&) = delete;

    // For the next call only; -1 where the program has closed it.
    int descriptor() const noexcept { return file_.descriptor(); }
    // What lies under the name, no link followed; 0 or an errno.
    int look(const char* name, struct stat& info) const noexcept;
    // 0 or an errno.
    int remove(const char* name) const noexcept;
    // Removes what lies under the name if it is that file, and not another that took its place; 0, also where
    // it is not, or an errno.
    int remove_if(const char* name, const struct stat& file) const noexcept;

  private:
    HeldFile file_;
};

// In which directory the file lies by now that is mapped there, as the kernel tells it; empty where it does
// not, or there is no memory. The kernel keeps the place of a mapped file, also of one without a name, until
// it is unmapped: no call of the program's that closes numbers reaches it.
std::string directory_of_mapping(const void* address) noexcept;

// The directory of a file that is mapped, which is found whatever the program renames, and whichever numbers
// it closes.
class MappedDirectory {
  public:
    // Opens it. A file that was made in it is mapped at `mapped`, until `close`; nullptr where none could be.
    void open(const std::string& path, const void* mapped) noexcept;
    // For the next call only; where the program has closed it, it is opened again. -1 where it cannot be.
    int descriptor() noexcept;
    // Where it lies by now; empty where the kernel does not tell.
    std::string path_now() noexcept;
    void close() noexcept { held_.close(); }

  private:
    HeldFile held_;
    const void* mapped_ = nullptr;
};

}  // namespace dftrace
