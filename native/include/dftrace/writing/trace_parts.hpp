// The file, or row of files, of one trace: appends whole blocks, each announced in the spool first.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dftrace/spool/spool.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"
#include "dftrace/writing/trace_file.hpp"

namespace dftrace {

struct FileOwner {
    std::uint32_t user;
    std::uint32_t group;
};

// What is in the files, as it was at one moment.
struct Written {
    std::string path;              // of the part that was begun last
    std::uint64_t file_bytes = 0;  // of that part
    LineCounts lines{};            // of all parts
};

// A unit, and how many of its records a block comes up to.
using TouchedUnits = std::vector<std::pair<UnitHeader*, std::uint32_t>>;

// What the marks of a write say, once it has landed.
struct WriteFacts {
    LineCounts lines{};  // in the part
    std::uint32_t lanes = 0;
    TraceStage stage = TraceStage::records;
    TouchedUnits touched;
};

// Carries so many bytes of a copied spool to the file; 0 or an errno.
using KeepMark = std::function<int(const void*, std::size_t)>;

class TraceParts {
  public:
    // `stem` and `suffix` make up the name of the first part.
    TraceParts(SpoolHeader& header, std::string stem, std::string suffix, std::uint32_t mode);

    // Files go on only if they belong to this user, and new ones are given to him.
    void belongs_to(FileOwner owner) noexcept { owner_ = owner; }
    // Files lie in this directory, whatever stands in front of their names. For as long as this object lives.
    void lies_in(const Directory& directory) noexcept;
    // The marks are in a copy of the spool: each is carried to the file, before what it tells of is done.
    void keeps_marks_by(KeepMark keep) { keep_ = std::move(keep); }
    // Where somebody removes or cuts the file every write fails, in place of going on in another file, and
    // the units are as they were before the part. For a spool that holds still what was written from it.
    void keeps_to_its_file() noexcept { keeps_to_its_file_ = true; }
    bool is_kept_to_its_file() const noexcept { return keeps_to_its_file_; }
    // Goes on where the process that died stopped; 0 or an errno. `tail` gets what the marks do not tell of.
    int resume(std::string* tail = nullptr);

    // Number of the write that comes next.
    std::uint64_t next_write() const noexcept {
        return header_.write_number.load(std::memory_order_relaxed) + 1;
    }
    // Makes the part's file if there is none yet, and appends `block`; 0 or an errno. The spool's marks, that
    // of the write and those of the units, tell of it before it is made, and are taken back if it fails.
    int append(std::string_view block, std::size_t plain_bytes, const WriteFacts& facts);
    // Appends what is no event and of no unit.
    int append_aside(std::string_view block, std::size_t plain_bytes);
    // Writes behind what the marks tell of; the next write takes its place. 0 or an errno.
    int put_tail(std::string_view block) { return file_.is_open() ? file_.put_tail(block) : 0; }
    // Ends the part; what is appended next begins another. 0 or an errno.
    int close(std::string_view footer, std::size_t plain_bytes, const Losses& told);
    // Somebody has removed or cut the part's file, and blocks in it are gone. It is given up, and another
    // part begun: how many lines of events were in it.
    bool spoilt() const noexcept { return begun() && file_.spoilt(); }
    std::uint64_t give_up_part() noexcept;
    // 0, or the errno with which one that keeps to its file ends.
    int check_file();
    // It has ended so.
    bool file_was_spoilt() const noexcept { return file_was_spoilt_; }
    // Deletes the oldest parts that this object made, so that `keep` remain.
    void keep_last(std::uint32_t keep);

    // The part has its first block.
    bool begun() const noexcept { return file_.is_open() && file_.bytes() != 0; }
    const std::string& path() const noexcept { return path_; }
    // That file; none where nothing was written.
    FileIdentity file() const noexcept {
        return written_parts_.empty() ? FileIdentity() : written_parts_.back().file;
    }
    // In a forked child: closes the parent's file.
    void abandon() noexcept { file_.close(); }
    std::uint32_t part() const noexcept { return part_; }
    std::uint64_t file_bytes() const noexcept { return file_.bytes(); }
    std::uint64_t plain_bytes() const noexcept { return plain_bytes_; }
    const LineCounts& lines() const noexcept { return lines_; }
    const LineCounts& earlier_lines() const noexcept { return earlier_lines_; }
    // For any thread: it waits for no disk.
    Written written() const {
        std::lock_guard lock(written_mutex_);
        return written_;
    }
    // What the footers of the parts before have told.
    const Losses& told() const noexcept { return told_; }

  private:
    // Carries a mark, or a unit's; 0 or an errno.
    template <typename Mark>
    int keep(const Mark& mark) const {
        return keep_ ? keep_(&mark, sizeof mark) : 0;
    }
    int write(std::string_view block, std::size_t plain_bytes, const LineCounts& lines, std::uint32_t lanes,
              TraceStage stage, bool closes);
    int open_file();
    void forget_empty_file() noexcept;
    int resume_file(std::uint64_t bytes, std::string* tail);
    void go_on();
    // Where the file of that name lies now: in the directory of the stem, whatever the spool says.
    std::string path_here(const TracePath& path) const;

    SpoolHeader& header_;
    std::string stem_;
    std::string suffix_;
    std::uint32_t mode_;
    std::optional<FileOwner> owner_;
    TraceFile file_;
    std::string path_;
    std::uint32_t part_ = 0;
    std::uint64_t plain_bytes_ = 0;
    LineCounts lines_{};          // of this part, in the file
    LineCounts earlier_lines_{};  // of the parts before
    Losses told_{};
    mutable std::mutex written_mutex_;  // held for a copy
    Written written_;
    struct WrittenPart {
        std::string path;
        FileIdentity file;
    };
    std::deque<WrittenPart> written_parts_;
    const Directory* directory_ = nullptr;  // nullptr: paths are taken as they are
    KeepMark keep_;
    bool keeps_to_its_file_ = false;
    bool file_was_spoilt_ = false;
    std::map<UnitHeader*, std::uint32_t> consumed_before_part_;  // with `keeps_to_its_file`
};

}  // namespace dftrace
