// The trace file on disk: created under a name nobody has, appended to in whole blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace dftrace {

class TraceFile {
  public:
    TraceFile() = default;
    ~TraceFile();
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;

    // Creates `stem + suffix`, or `stem-1 + suffix`, ... exclusively, mode 0600; 0 or an errno.
    // `announce` hears each name before it is tried.
    int create(const std::string& stem, const std::string& suffix,
               const std::function<void(const std::string&)>& announce = {});
    // Opens a file that this run began, to go on behind its first `bytes` bytes; 0 or an errno. One that
    // belongs to another user than `owner` is not touched: EPERM.
    int resume(const std::string& path, std::uint64_t bytes, std::optional<std::uint32_t> owner = {});
    void close() noexcept;
    int descriptor() const noexcept { return fd_; }
    // All of `block` or nothing of it; 0 or an errno.
    int append(std::string_view block);

    bool is_open() const noexcept { return fd_ >= 0; }
    const std::string& path() const noexcept { return path_; }
    std::uint64_t bytes() const noexcept { return bytes_; }

  private:
    int take_back();

    int fd_ = -1;
    bool torn_ = false;  // behind the last block stands a piece of one
    std::string path_;
    std::uint64_t bytes_ = 0;
};

}  // namespace dftrace
