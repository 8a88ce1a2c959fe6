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

}  // namespace dftrace
