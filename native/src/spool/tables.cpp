// Reading blob entries, and forgetting the snapshots that no record can name any more.
#include "dftrace/spool/tables.hpp"

#include <algorithm>

#include "dftrace/text/json_check.hpp"

namespace dftrace {

void BlobTables::read(UnitHeader* unit) {
    Progress& progress = units_[unit];
    const std::uint32_t committed = std::min(unit->committed.load(std::memory_order_acquire), unit->capacity);
    while (progress.read + sizeof(BlobHeader) <= committed) {
        const auto* blob = reinterpret_cast<const BlobHeader*>(blobs_of(unit) + progress.read);
        // A torn or foreign entry ends the unit: nothing behind it can be trusted.
        if (blob->bytes > committed - progress.read - sizeof(BlobHeader)) {
            progress.read = committed;
            ++refused_;
            return;
        }
        const std::string_view text(reinterpret_cast<const char*>(blob + 1), blob->bytes);
        if (doubting_ && !believable(*blob, text, progress)) {
            ++refused_;
        } else if (blob->kind == BlobKind::name) {
            if (blob->id >= names_.size()) names_.resize(std::size_t{blob->id} + 1);
            // What is stored tells by its form which of the two it is.
            names_[blob->id] = {text,
                                is_json_name(text) ? StoredText::Of::event : StoredText::Of::exception_type};
        } else if (blob->kind == BlobKind::arguments) {
            const std::size_t page = blob->id / page_entries;
            if (page >= pages_.size()) pages_.resize(page + 1);
            if (!pages_[page]) pages_[page] = std::make_unique<Page>();
            Snapshot& entry = pages_[page]->entries[blob->id % page_entries];
            if (!entry.unit) ++pages_[page]->live;
            entry = {text, unit};
            ++progress.live;
            progress.last_argument = blob->id;
        } else if (blob->kind == BlobKind::release) {
            releases_.push_back(blob->id);
        } else if (doubting_ && (blob->kind == BlobKind::fact || blob->kind == BlobKind::lane)) {
            told_by_parts_.push_back({blob->kind, blob->id, text});
        }
        progress.read += static_cast<std::uint32_t>((sizeof(BlobHeader) + blob->bytes + 7) & ~std::size_t{7});
    }
}

bool BlobTables::believable(const BlobHeader& blob, std::string_view text,
                            const Progress& progress) const noexcept {
    constexpr std::uint32_t max_names = 1u << 22;  // more than a spool has room for
    switch (blob.kind) {
        case BlobKind::name: return blob.id < max_names && (is_json_name(text) || is_json_string(text));
        case BlobKind::arguments:
            // Numbers are given out in a row; a made-up one could ask for any amount of memory.
            return (progress.last_argument == 0 || blob.id == progress.last_argument + 1) &&
                   is_json_members(text);
        case BlobKind::release: return true;
        case BlobKind::fact: return is_json_line(text);
        case BlobKind::lane: return is_json_string(text);
    }
    return false;
}

std::uint32_t BlobTables::add(std::string members) {
    const std::size_t at = added_.size() % page_entries;
    if (pages_.empty()) pages_.emplace_back();  // number 0 is none
    if (at == 0) pages_.push_back(std::make_unique<Page>());
    pages_.back()->entries[at].text = added_.emplace_back(std::move(members));
    return static_cast<std::uint32_t>((pages_.size() - 1) * page_entries + at);
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
