// The trace file on disk: created under a name nobody has, appended to in whole blocks.
#pragma once

#include <fcntl.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"

namespace dftrace {

// Of the open spans of a dump; those of thousands of threads fit.
constexpr std::size_t max_tail_bytes = std::size_t{64} << 20;

class TraceFile {
  public:
    TraceFile() = default;
    TraceFile(const TraceFile&) = delete;
    TraceFile& operator=(const TraceFile&) = delete;

    // From here on files lie in this directory, whatever stands in front of their names.
    // For as long as this object lives.
    void lies_in(const Directory& directory) noexcept { directory_ = &directory; }
    // Creates `stem + suffix`, or `stem-1 + suffix`, ... exclusively, of that mode whatever the umask says;
    // 0 or an errno. `announce` hears each name before it is tried; what it returns but 0 ends it.
    int create(const std::string& stem, const std::string& suffix,
               const std::function<int(const std::string&)>& announce = {}, std::uint32_t mode = 0600);
    // Opens a file that this run began, to go on behind its first `bytes` bytes; 0 or an errno. One that
    // belongs to another user than `owner`, if there is one, is not touched: EPERM; neither is one that
    // has another name besides, which may be anybody's: EMLINK. What stood behind them is cut off, and put
    // into `tail` where that is wanted and is not longer than `max_tail_bytes`.
    int resume(const std::string& path, std::uint64_t bytes, std::optional<std::uint32_t> owner = {},
               std::string* tail = nullptr);
    void close() noexcept;
    // Its number, for the next call only; -1 where somebody else has closed it.
    int descriptor() const noexcept { return file_.descriptor(); }
    // All of `block` or nothing of it; 0 or an errno. Where the program has closed the file behind our back
    // it is opened again.
    int append(std::string_view block);
    // The same, but what is written next takes its place.
    int put_tail(std::string_view block);
    // Cuts off a tail, or what a write left that did not come to its end; 0 or an errno.
    int cut_tail();

    bool is_open() const noexcept { return file_.known(); }
    // Somebody has removed the file, or cut it: what was written is gone, and what is written now would be.
    bool spoilt() const noexcept;
    const std::string& path() const noexcept { return path_; }
    std::uint64_t bytes() const noexcept { return bytes_; }

  private:
    int open_again();
    int take_back();
    int put(std::string_view block);
    int write_all(std::string_view block);
    // Of a path in the directory where files lie.
    std::string place_of(const std::string& path) const;
    int read_behind(std::uint64_t size, std::string& tail) const;

    // To be used at once: its number may be closed, and somebody else's, the next moment.
    int directory() const noexcept { return directory_ ? directory_->descriptor() : AT_FDCWD; }

    const Directory* directory_ = nullptr;  // nullptr: paths are taken as they are
    HeldFile file_;
    bool tail_ = false;  // behind the last block stands a tail, or a piece of a block
    std::string path_;
    std::uint64_t bytes_ = 0;
};

}  // namespace dftrace
