// The directory of a file that is mapped, which is found whatever the program renames, and whichever numbers
// it closes.
#pragma once

#include <string>

#include "dftrace/system/held_file.hpp"

namespace dftrace {

// In which directory the file lies by now that is mapped there, as the kernel tells it; empty where it does
// not, or there is no memory. The kernel keeps the place of a mapped file, also of one without a name, until
// it is unmapped: no call of the program's that closes numbers reaches it.
std::string directory_of_mapping(const void* address) noexcept;

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
