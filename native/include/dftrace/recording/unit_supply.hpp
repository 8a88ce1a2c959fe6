// Units of the spool for whoever stores something, and how often some came back.
#pragma once

#include <atomic>
#include <cstdint>

#include "dftrace/spool/spool.hpp"

namespace dftrace {

class UnitSupply {
  public:
    explicit UnitSupply(Spool& spool) noexcept : spool_(spool) {}
    virtual ~UnitSupply() = default;
    UnitSupply(const UnitSupply&) = delete;
    UnitSupply& operator=(const UnitSupply&) = delete;

    // A fresh run of units, or nullptr when there is none to be had.
    virtual UnitHeader* take(UnitKind kind, std::uint32_t owner, std::uint32_t units = 1,
                             std::uint64_t before = 0) {
        return spool_.acquire(kind, owner, units, before);
    }
    // So many in a row could be had if all others came back.
    bool could_give(std::uint32_t units) const noexcept { return spool_.could_give(units); }
    void give_back(UnitHeader* unit) {
        spool_.release(unit);
        tell_of_room();
    }
    // Who was refused a unit need not ask again while this number is the same.
    std::uint64_t times_given_back() const noexcept { return given_back_.load(std::memory_order_relaxed); }

  protected:
    void tell_of_room() noexcept { given_back_.fetch_add(1, std::memory_order_relaxed); }

    Spool& spool_;

  private:
    std::atomic<std::uint64_t> given_back_{0};
};

}  // namespace dftrace
