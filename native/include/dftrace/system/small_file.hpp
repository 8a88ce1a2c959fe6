// The beginning of a small file that the kernel writes, as those below /proc and /sys are.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

namespace dftrace {

// Empty where it cannot be read. Not a stream: that takes a want of memory for the end of the file, and
// brings all languages' ways to write dates and money, a fifth of the module.
class SmallFile {
  public:
    explicit SmallFile(const char* path) noexcept {
        const int file = ::open(path, O_RDONLY | O_CLOEXEC);
        if (file < 0) return;
        ssize_t got = 0;
        do got = ::read(file, text_, sizeof text_);
        while (got < 0 && errno == EINTR);
        ::close(file);
        was_read_ = got >= 0;
        if (got > 0) bytes_ = static_cast<std::size_t>(got);
    }
    // Also where nothing stands in it.
    bool was_read() const noexcept { return was_read_; }
    std::string_view line() const noexcept {
        const std::string_view all(text_, bytes_);
        return all.substr(0, all.find('\n'));
    }

  private:
    char text_[4096];
    std::size_t bytes_ = 0;
    bool was_read_ = false;
};

}  // namespace dftrace
