// The file, or row of files, of one trace: appends whole blocks, each announced in the spool first.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "dftrace/spool.hpp"
#include "dftrace/trace_file.hpp"

namespace dftrace {

struct FileOwner {
    std::uint32_t user;
    std::uint32_t group;
};

class TraceParts {
  public:
    // `stem` and `suffix` make up the name of the first part.
    TraceParts(SpoolHeader& header, std::string stem, std::string suffix);

    // Files go on only if they belong to this user, and new ones are given to him.
    void belongs_to(FileOwner owner) noexcept { owner_ = owner; }
    // Goes on where the process that died stopped; 0 or an errno.
    int resume();

    // Number of the write that comes next.
    std::uint64_t next_write() const noexcept {
        return header_.write_number.load(std::memory_order_relaxed) + 1;
    }
    // Makes the part's file if there is none yet, and appends `block`; 0 or an errno. The spool's mark
    // tells of it before it is made, and is taken back if it fails. `lines` are those in the part then.
    int append(std::string_view block, std::size_t plain_bytes, const LineCounts& lines, std::uint32_t lanes,
               TraceStage stage) {
        return append(block, plain_bytes, lines, lanes, stage, false);
    }
    // Ends the part; what is appended next begins another. 0 or an errno.
    int close(std::string_view footer, std::size_t plain_bytes, const Losses& told);
    // Deletes the oldest parts that this object made, so that `keep` remain.
    void keep_last(std::uint32_t keep);

    // The part has its first block.
    bool begun() const noexcept { return file_.is_open() && file_.bytes() != 0; }
    const std::string& path() const noexcept { return path_; }
    std::uint32_t part() const noexcept { return part_; }
    std::uint64_t file_bytes() const noexcept { return file_.bytes(); }
    std::uint64_t plain_bytes() const noexcept { return plain_bytes_; }
    const LineCounts& lines() const noexcept { return lines_; }
    // What the footers of the parts before have told.
    const Losses& told() const noexcept { return told_; }

  private:
    int append(std::string_view block, std::size_t plain_bytes, const LineCounts& lines, std::uint32_t lanes,
               TraceStage stage, bool closes);
    int open_file();
    int resume_file(std::uint64_t bytes);
    void go_on();
    // Where the file of that name lies now: in the directory of the stem, whatever the spool says.
    std::string path_here(const TracePath& path) const;

    SpoolHeader& header_;
    std::string stem_;
    std::string suffix_;
    std::optional<FileOwner> owner_;
    TraceFile file_;
    std::string path_;
    std::uint32_t part_ = 0;
    std::uint64_t plain_bytes_ = 0;
    LineCounts lines_{};          // of this part, in the file
    LineCounts earlier_lines_{};  // of the parts before
    Losses told_{};
    std::deque<std::string> written_parts_;
};

}  // namespace dftrace
