// Parts of a spool, copied out while its process goes on writing to it. The file is read with `pread`
// and never mapped: it may be cut meanwhile. What it holds is not believed: it may be damaged or made up.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dftrace/spool/record.hpp"
#include "dftrace/spool/spool.hpp"
#include "dftrace/system/clock.hpp"
#include "dftrace/system/held_file.hpp"

namespace dftrace {

// What a unit's header said at some moment.
struct UnitFacts {
    std::uint32_t index = 0;
    UnitKind kind = UnitKind::free;
    std::uint32_t owner = 0;
    std::uint32_t units = 0;
    std::uint64_t sequence = 0;
    std::uint32_t committed = 0;
    std::uint32_t consumed = 0;
    std::uint32_t next = 0;
    std::uint32_t capacity = 0;
    std::uint64_t before = 0;

    // Room for records, and no more or less than such a unit has.
    bool may_hold_records() const noexcept;
    // The same use of the same unit: what was copied between two looks is whole.
    bool same_use(const UnitFacts& earlier) const noexcept {
        return sequence == earlier.sequence && before == earlier.before && owner == earlier.owner &&
               capacity == earlier.capacity && committed >= earlier.committed;
    }
};

// A thread's name and open spans as they were at one moment.
struct StackCopy {
    std::uint32_t tid = 0;
    bool ended = false;
    std::uint32_t depth = 0;  // also of spans deeper than the file tells of
    std::string name;
    std::vector<OpenSpan> open;
    std::vector<OpenSpan> tasks;
};

// Texts by number, of those that were asked for; what is no JSON, or too long, is left out.
using Texts = std::unordered_map<std::uint32_t, std::string>;

class SpoolCopy {
  public:
    // Throws std::system_error if the file cannot be read, std::runtime_error if it is no spool of this
    // version.
    explicit SpoolCopy(const std::string& path);
    // Of a spool that is open already, and stays so.
    explicit SpoolCopy(int descriptor);
    SpoolCopy(const SpoolCopy&) = delete;
    SpoolCopy& operator=(const SpoolCopy&) = delete;

    // Whether its process holds it, or another that completes its trace: asked where the process itself
    // cannot be.
    bool held() const noexcept;
    // As it was at the beginning.
    const SpoolHeader& header() const noexcept {
        return *reinterpret_cast<const SpoolHeader*>(header_->bytes.data());
    }
    ClockMap clock() const;  // throws std::runtime_error when there is none

    // All units that look like one, in the order of the file.
    std::vector<UnitFacts> units() const;
    std::optional<UnitFacts> unit(std::uint32_t index) const;
    // Nothing if the unit is no longer this thread's.
    std::optional<StackCopy> stack(const UnitFacts& thread_unit) const;
    // Of the block of who samples stacks: where threads stand.
    std::vector<OpenSpan> standing(const UnitFacts& thread_unit) const;
    // The unit's records, oldest first, and what its header said then; nothing if it was used again
    // meanwhile.
    std::optional<UnitFacts> records(const UnitFacts& unit, std::vector<Record>& into) const;
    // Adds the texts of those numbers that `wanted` has as keys.
    void fill_names(const std::vector<UnitFacts>& all, Texts& wanted) const;
    void fill_arguments(const std::vector<UnitFacts>& all, Texts& wanted) const;

  private:
    struct alignas(64) Page {
        std::array<char, unit_bytes> bytes{};
    };
    SpoolCopy();
    std::size_t read(std::uint64_t offset, void* into, std::size_t bytes) const noexcept;
    void copy_header();
    std::uint32_t after(std::uint32_t index) const;
    std::vector<OpenSpan> settled_slots(std::uint64_t at, std::uint32_t slots) const;
    void fill(const std::vector<UnitFacts>& all, UnitKind kind, Texts& wanted) const;

    void look_at_file(const std::string& path, int error);
    int descriptor() const noexcept { return borrowed_ >= 0 ? borrowed_ : file_.descriptor(); }

    HeldFile file_;
    int borrowed_ = -1;
    std::unique_ptr<Page> header_;
};

}  // namespace dftrace
