// The spool of another process, as whoever completes its trace sees it. What the file holds is not
// believed: it may be cut, damaged, or made up.
//
// The file is copied, piece by piece, and never mapped: a store by somebody else would change what was
// found sound, and a cut, or a hole for which the disk has no room, would be a SIGBUS.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dftrace/spool/settings.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"

namespace dftrace {

class SpoolView {
  public:
    // Opens the file and copies its header; throws std::runtime_error if it is no spool of this version.
    explicit SpoolView(const std::string& path);
    // Of the caller's own, as it lies in memory: its file may be closed or removed, or may not be opened.
    SpoolView(const char* memory, std::size_t bytes);
    ~SpoolView();
    SpoolView(const SpoolView&) = delete;
    SpoolView& operator=(const SpoolView&) = delete;

    // False while the spool's process lives, or another completes its trace. The lock goes with this
    // object. The header is copied anew: whoever held the lock before may have changed it.
    bool lock();
    // Whoever held the lock before has finished the trace and removed the file.
    bool removed() const noexcept;
    // Removes the file, from the directory in which it was opened; 0 or an errno.
    int remove() const noexcept;
    // The file has another name besides: removing one would leave the other.
    bool has_other_names() const noexcept;

    // The copies. What is stored in them reaches the file by `keep` alone.
    SpoolHeader& header() noexcept { return *reinterpret_cast<SpoolHeader*>(base_); }
    std::uint32_t owner() const noexcept { return found_.st_uid; }
    std::uint32_t group() const noexcept { return found_.st_gid; }
    // When its process last said that it lives, in nanoseconds since 1970 by the wall clock; 0 for unknown.
    std::uint64_t touched_ns() const noexcept {
        return static_cast<std::uint64_t>(found_.st_mtim.tv_sec) * 1'000'000'000u +
               static_cast<std::uint64_t>(found_.st_mtim.tv_nsec);
    }

    // The headers of all sound units in use, in the order in which they were taken. What is wrong is
    // added to `damage`, a line for each kind of fault.
    std::vector<UnitHeader*> units(std::vector<std::string>& damage);
    // Copies what is behind a unit's header, as far as it is valid, and lets go of it again, except for
    // what is behind that of a thread.
    void load(UnitHeader* unit);
    void let_go(UnitHeader* unit) noexcept;
    // Writes a piece of a copy back; 0 or an errno.
    int keep(const void* piece, std::size_t bytes) noexcept;
    template <typename Piece>
    int keep(const Piece& piece) noexcept {
        return keep(&piece, sizeof piece);
    }
    // The file became shorter while it was read: what was missing is zero.
    bool cut_meanwhile() const noexcept { return cut_; }

    // Units of names or arguments that said that they held more than was ever written to them.
    std::size_t hollow() const noexcept { return hollow_; }

    TraceSettings settings() const;
    ClockMap clock() const;  // throws std::runtime_error when there is none
    // The process is gone, or is one of another container, of which only the lock tells.
    bool process_gone() const;

  private:
    const SpoolHeader& header() const noexcept { return *reinterpret_cast<const SpoolHeader*>(base_); }
    // Copies to the same place; false if the file ends before.
    bool copy(std::size_t from, std::size_t bytes);
    std::size_t copy_text(std::size_t from, std::size_t bytes);
    void copy_header();
    void forget() noexcept;
    std::uint32_t next_with_data(std::uint32_t index) const noexcept;

    void reserve_memory();

    std::optional<Directory> place_;
    std::string name_;
    const char* own_ = nullptr;  // nullptr: it is copied from the file
    HeldFile file_;
    struct stat found_ {};
    char* base_ = nullptr;
    std::uint32_t units_ = 0;
    bool cut_ = false;
    std::size_t hollow_ = 0;
};

}  // namespace dftrace
