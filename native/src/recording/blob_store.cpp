// Storing names and arguments, and giving back what nobody needs.
#include "dftrace/recording/blob_store.hpp"

#include <algorithm>
#include <new>

#include "dftrace/text/names.hpp"
#include "dftrace/writing/tracks.hpp"

namespace dftrace {

namespace {

constexpr std::size_t bytes_of_blob(std::string_view text) noexcept {
    return (sizeof(BlobHeader) + text.size() + 7) & ~std::size_t{7};
}

constexpr std::uint32_t units_of_blob(std::string_view text) noexcept {
    return static_cast<std::uint32_t>((bytes_of_blob(text) + sizeof(UnitHeader) + unit_bytes - 1) /
                                      unit_bytes);
}

}  // namespace

bool BlobStore::append(std::vector<UnitHeader*>& chain, UnitKind unit_kind, BlobKind kind, std::uint32_t id,
                       std::string_view text) {
    const std::size_t needed = bytes_of_blob(text);
    UnitHeader* unit = chain.empty() ? nullptr : chain.back();
    std::uint32_t at = unit ? unit->committed.load(std::memory_order_relaxed) : 0;
    if (!unit || at + needed > unit->capacity) {
        chain.reserve(chain.size() + 1);
        unit = units_.take(unit_kind, 0, units_of_blob(text));
        if (!unit) return false;
        chain.push_back(unit);
        at = 0;
    }
    auto* blob = reinterpret_cast<BlobHeader*>(blobs_of(unit) + at);
    blob->id = id;
    blob->bytes = static_cast<std::uint32_t>(text.size());
    blob->kind = kind;
    blob->reserved = 0;
    text.copy(reinterpret_cast<char*>(blob + 1), text.size());
    unit->committed.store(at + static_cast<std::uint32_t>(needed), std::memory_order_release);
    return true;
}

// Where there is no memory a name or a snapshot is as one for which the spool has no room.
template <typename Work>
bool BlobStore::with_room(Work work) noexcept {
    std::lock_guard lock(mutex_);
    try {
        return work();
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void BlobStore::define_names(std::uint32_t upto) noexcept {
    with_room([&] {
        define_names_locked(upto);
        return true;
    });
}

std::uint32_t BlobStore::lane_named(Thread& thread, std::uint32_t name) noexcept {
    const std::lock_guard lock(lanes_mutex_);
    for (const auto& [known, lane] : named_lanes_)
        if (known == name) return lane;
    define_names(name);
    const std::uint32_t lane = first_task_lane + new_lane();
    try {
        named_lanes_.emplace_back(name, lane);
    } catch (const std::bad_alloc&) {
        return 0;  // the thread's own track
    }
    thread.announce_lane(lane, name);
    return lane;
}

void BlobStore::define_names_locked(std::uint32_t upto) {
    names_wanted_ = std::max(names_wanted_, upto);
    for (; names_defined_ <= names_wanted_; ++names_defined_) {
        if (names_defined_ == 0) continue;
        if (!append(name_units_, UnitKind::names, BlobKind::name, names_defined_,
                    interned_json(names_defined_)))
            return;  // tried again by the next definition, and by the drain thread
    }
}

std::optional<std::uint32_t> BlobStore::put_arguments(std::string_view json_members,
                                                      std::uint32_t& instead_of) noexcept {
    std::uint32_t id = 0;
    const bool stored = with_room([&] {
        if (instead_of && append(argument_units_, UnitKind::arguments, BlobKind::release, instead_of, {}))
            instead_of = 0;
        if (json_members.empty()) return true;
        if (!append(argument_units_, UnitKind::arguments, BlobKind::arguments, next_argument_, json_members))
            return false;
        id = next_argument_++;
        return true;
    });
    return stored ? std::optional(id) : std::nullopt;
}

bool BlobStore::would_take(std::string_view json_members) const noexcept {
    return units_.could_give(4 * units_of_blob(json_members));
}

void BlobStore::release_arguments(std::uint32_t id) noexcept {
    if (!id) return;
    // Without room for the release the snapshot just stays until the end.
    with_room([&] { return append(argument_units_, UnitKind::arguments, BlobKind::release, id, {}); });
}

void BlobStore::keep_for_parts(BlobKind kind, std::uint32_t number, std::string_view text) noexcept {
    with_room([&] { return append(name_units_, UnitKind::names, kind, number, text); });
}

void BlobStore::read_into(BlobTables& tables) {
    std::vector<UnitHeader*> units;
    {
        std::lock_guard lock(mutex_);
        define_names_locked(names_wanted_);
        units = name_units_;
        units.insert(units.end(), argument_units_.begin(), argument_units_.end());
    }
    for (UnitHeader* unit : units) tables.read(unit);
}

void BlobStore::give_back_spent(BlobTables& tables) {
    std::lock_guard lock(mutex_);
    if (argument_units_.empty()) return;
    // The last unit is still being filled.
    const auto tail = argument_units_.end() - 1;
    const auto kept = std::stable_partition(argument_units_.begin(), tail,
                                            [&](UnitHeader* unit) { return !tables.spent(unit); });
    for (auto it = kept; it != tail; ++it) {
        tables.drop_unit(*it);
        units_.give_back(*it);
    }
    argument_units_.erase(kept, tail);
}

}  // namespace dftrace
