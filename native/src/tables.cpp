// Reading blob entries, and forgetting the snapshots that no record can name any more.
#include "dftrace/tables.hpp"

#include <algorithm>

namespace dftrace {

void BlobTables::read(UnitHeader* unit) {
    Progress& progress = units_[unit];
    const std::uint32_t committed = std::min(unit->committed.load(std::memory_order_acquire), unit->capacity);
    while (progress.read + sizeof(BlobHeader) <= committed) {
        const auto* blob = reinterpret_cast<const BlobHeader*>(blobs_of(unit) + progress.read);
        // A torn or foreign entry ends the unit: nothing behind it can be trusted.
        if (blob->bytes > committed - progress.read - sizeof(BlobHeader)) {
            progress.read = committed;
            return;
        }
        const std::string_view text(reinterpret_cast<const char*>(blob + 1), blob->bytes);
        constexpr std::uint32_t max_names = 1u << 22;  // more than a spool has room for
        if (blob->kind == BlobKind::name && blob->id < max_names) {
            if (blob->id >= names_.size()) names_.resize(std::size_t{blob->id} + 1);
            names_[blob->id] = text;
        } else if (blob->kind == BlobKind::arguments) {
            const std::size_t page = blob->id / page_entries;
            if (page >= pages_.size()) pages_.resize(page + 1);
            if (!pages_[page]) pages_[page] = std::make_unique<Page>();
            Snapshot& entry = pages_[page]->entries[blob->id % page_entries];
            if (!entry.unit) ++pages_[page]->live;
            entry = {text, unit};
            ++progress.live;
        } else if (blob->kind == BlobKind::release) {
            releases_.push_back(blob->id);
        }
        progress.read += static_cast<std::uint32_t>((sizeof(BlobHeader) + blob->bytes + 7) & ~std::size_t{7});
    }
}

UnitHeader* BlobTables::forget(std::uint32_t id) {
    const std::size_t page = id / page_entries;
    if (page >= pages_.size() || !pages_[page]) return nullptr;
    Snapshot& entry = pages_[page]->entries[id % page_entries];
    UnitHeader* unit = entry.unit;
    if (!unit) return nullptr;
    entry = {};
    if (--pages_[page]->live == 0) pages_[page].reset();
    return --units_[unit].live == 0 ? unit : nullptr;
}

bool BlobTables::spent(const UnitHeader* unit) const {
    const auto it = units_.find(unit);
    return it != units_.end() && it->second.live == 0 &&
           it->second.read >= unit->committed.load(std::memory_order_acquire);
}

}  // namespace dftrace
