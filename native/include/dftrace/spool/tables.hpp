// Names and argument snapshots as read from a spool's blob units.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dftrace/spool/spool.hpp"

namespace dftrace {

class BlobTables {
  public:
    // Of a spool that another process wrote nothing is believed: a text that is not the JSON it should
    // be, or bears a number out of order, is left out and counted.
    explicit BlobTables(bool doubting = false) : doubting_(doubting) {}

    // Reads what `unit` has committed beyond what was read of it before.
    void read(UnitHeader* unit);

    // The JSON members of an event's name, `"name":"forward","cat":"compute"`; empty when it is not known.
    std::string_view name(std::uint32_t id) const noexcept { return stored(id, StoredText::Of::event); }
    // An exception's type, `"ValueError"`; empty when it is not known.
    std::string_view exception_type(std::uint32_t id) const noexcept {
        return stored(id, StoredText::Of::exception_type);
    }
    // The JSON members of a snapshot, each with a comma in front; empty when it is not known.
    std::string_view arguments(std::uint32_t id) const noexcept {
        const std::size_t page = id / page_entries;
        if (page >= pages_.size() || !pages_[page]) return {};
        return pages_[page]->entries[id % page_entries].text;
    }

    // What every part of a trace tells, in the order in which it was told first: a line of metadata and the
    // number of its name, or a JSON string and the number of the lane that is called so.
    struct Told {
        BlobKind kind;
        std::uint32_t number;
        std::string_view text;
    };
    const std::vector<Told>& told_by_parts() const noexcept { return told_by_parts_; }

    // Takes in a snapshot that is in no unit; its number.
    std::uint32_t add(std::string members);

    std::uint64_t refused() const noexcept { return refused_; }

    std::size_t releases() const noexcept { return releases_.size(); }
    // Ids released since the last call. They may be forgotten once no record can name them.
    std::vector<std::uint32_t> take_releases() noexcept { return std::exchange(releases_, {}); }
    // Forgets a snapshot; returns its unit if that now holds no live one, else nullptr.
    UnitHeader* forget(std::uint32_t id);
    // True when everything in the unit was read and none of it is needed any more.
    bool spent(const UnitHeader* unit) const;
    void drop_unit(const UnitHeader* unit) { units_.erase(unit); }

  private:
    static constexpr std::size_t page_entries = 4096;
    // Both have numbers of one row, since names are defined up to a number.
    struct StoredText {
        enum class Of : std::uint8_t { nothing, event, exception_type };
        std::string_view text;
        Of of = Of::nothing;
    };
    std::string_view stored(std::uint32_t id, StoredText::Of of) const noexcept {
        return id < names_.size() && names_[id].of == of ? names_[id].text : std::string_view{};
    }
    struct Snapshot {
        std::string_view text;
        UnitHeader* unit = nullptr;
    };
    struct Page {
        std::array<Snapshot, page_entries> entries{};
        std::size_t live = 0;
    };
    struct Progress {
        std::uint32_t read = 0;
        std::uint32_t live = 0;
        std::uint32_t last_argument = 0;
    };
    bool believable(const BlobHeader& blob, std::string_view text, const Progress& progress) const noexcept;

    bool doubting_;
    std::deque<std::string> added_;
    std::uint64_t refused_ = 0;
    std::vector<StoredText> names_;
    std::vector<std::unique_ptr<Page>> pages_;
    std::vector<std::uint32_t> releases_;
    std::vector<Told> told_by_parts_;
    std::unordered_map<const UnitHeader*, Progress> units_;
};

}  // namespace dftrace
