// The spool of another process, as whoever completes its trace sees it. What the file holds is not
// believed: it may be cut, damaged, or made up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dftrace/clock.hpp"
#include "dftrace/held_file.hpp"
#include "dftrace/settings.hpp"
#include "dftrace/spool.hpp"

namespace dftrace {

class SpoolView {
  public:
    // Maps the file, shared, so that marks reach it; throws std::runtime_error if it is no spool of
    // this version.
    explicit SpoolView(const std::string& path);
    ~SpoolView();
    SpoolView(const SpoolView&) = delete;
    SpoolView& operator=(const SpoolView&) = delete;

    // False while the spool's process lives, or another completes its trace. The lock goes with this
    // object.
    bool lock() noexcept;
    // Whoever held the lock before has finished the trace and removed the file.
    bool removed() const noexcept;
    SpoolHeader& header() noexcept { return *reinterpret_cast<SpoolHeader*>(base_); }
    std::uint32_t owner() const noexcept { return owner_; }
    std::uint32_t group() const noexcept { return group_; }

    // All sound units in use, in the order in which they were taken. What is wrong is added to
    // `damage`, a line for each kind of fault.
    std::vector<UnitHeader*> units(std::vector<std::string>& damage);
    TraceSettings settings() const;
    ClockMap clock() const;  // throws std::runtime_error when there is none
    // The process is gone, or is one of another container, of which only the lock tells.
    bool process_gone() const;

  private:
    SpoolView() = default;
    const SpoolHeader& header() const noexcept { return *reinterpret_cast<const SpoolHeader*>(base_); }

    HeldFile file_;
    char* base_ = nullptr;
    std::uint32_t units_ = 0;
    std::uint32_t owner_ = 0;
    std::uint32_t group_ = 0;
};

}  // namespace dftrace
