// Numbers for names and tracks.
#include "dftrace/reading/traces/labels.hpp"

#include <cstring>

#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

// What an entry of a dictionary takes beside its texts.
constexpr std::size_t entry_bytes = 160;

std::uint64_t hash_of(const char* text, std::size_t bytes) noexcept {
    std::uint64_t hash = bytes * 0x9E3779B97F4A7C15ull;
    std::uint64_t word;
    for (; bytes > 8; bytes -= 8, text += 8) {
        std::memcpy(&word, text, 8);
        hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
        hash ^= hash >> 32;
    }
    std::memcpy(&word, text, 8);
    if (bytes < 8) word &= (std::uint64_t{1} << (8 * bytes)) - 1;
    hash = (hash ^ word) * 0x9FB21C651E98DF25ull;
    return hash ^ (hash >> 32);
}

}  // namespace

std::uint32_t Labels::number(std::string_view category, std::string_view name) {
    const std::lock_guard guard(lock_);
    return number_unlocked(category, name);
}

std::uint32_t Labels::number_unlocked(std::string_view category, std::string_view name) {
    // No two pairs make the same text: the length of the first stands in front.
    std::string key = std::to_string(category.size()) + ':';
    key.append(category).append(name);
    if (const auto found = numbers_.find(key); found != numbers_.end()) return found->second;
    budget_.take(entry_bytes + 2 * key.size());
    const auto number = static_cast<std::uint32_t>(labels_.size());
    labels_.push_back({std::string(category), std::string(name)});
    numbers_.emplace(std::move(key), number);
    return number;
}

const Labels::Spelling* Labels::spelling(std::string_view text, std::size_t name_bytes) {
    const std::lock_guard guard(lock_);
    if (const auto found = spelt_.find(text); found != spelt_.end()) return found->second;
    constexpr std::string_view between = "\",\"cat\":\"";
    const std::string name = '"' + std::string(text.substr(0, name_bytes)) + '"';
    const std::string category = '"' + std::string(text.substr(name_bytes + between.size())) + '"';
    if (!is_json_string(name) || !is_json_string(category)) return nullptr;
    const std::uint32_t label = number_unlocked(text_of_json_string(category), text_of_json_string(name));
    budget_.take(entry_bytes + text.size());
    const Spelling& made = spellings_.emplace_back(Spelling{std::string(text), label});
    spelt_.emplace(made.text, &made);
    return &made;
}

std::uint32_t Labels::track(const TrackId& id) {
    const std::lock_guard guard(lock_);
    if (const auto found = track_numbers_.find(id); found != track_numbers_.end()) return found->second;
    budget_.take(entry_bytes);
    const auto number = static_cast<std::uint32_t>(track_ids_.size());
    track_ids_.push_back(id);
    track_numbers_.emplace(id, number);
    return number;
}

std::size_t Labels::size() const {
    const std::lock_guard guard(lock_);
    return labels_.size();
}

std::size_t Labels::tracks() const {
    const std::lock_guard guard(lock_);
    return track_ids_.size();
}

const Label& Labels::operator[](std::uint32_t number) const {
    const std::lock_guard guard(lock_);
    return labels_[number];
}

TrackId Labels::track_id(std::uint32_t number) const {
    const std::lock_guard guard(lock_);
    return track_ids_[number];
}

const Labels::Spelling* KnownLabels::spelling(const char* text, std::size_t bytes, std::size_t name_bytes) {
    const std::uint64_t hash = hash_of(text, bytes);
    for (std::size_t at = hash & (table_.size() - 1);; at = (at + 1) & (table_.size() - 1)) {
        const Entry& entry = table_[at];
        if (!entry.spelling) break;
        if (entry.hash == hash && entry.spelling->text.size() == bytes &&
            std::memcmp(entry.spelling->text.data(), text, bytes) == 0)
            return entry.spelling;
    }
    const Labels::Spelling* const found = all_.spelling({text, bytes}, name_bytes);
    if (!found) return nullptr;
    if (2 * ++used_ > table_.size()) {
        std::vector<Entry> before(2 * table_.size());
        before.swap(table_);
        for (const Entry& entry : before)
            if (entry.spelling) place(entry);
    }
    place({hash, found});
    return found;
}

void KnownLabels::place(const Entry& entry) noexcept {
    std::size_t at = entry.hash & (table_.size() - 1);
    while (table_[at].spelling) at = (at + 1) & (table_.size() - 1);
    table_[at] = entry;
}

std::uint32_t KnownLabels::track(const TrackId& id) {
    // The few threads of a process meet no other here; those of another only take their places.
    const auto mixed = (static_cast<std::uint64_t>(id.pid) * 31 + static_cast<std::uint64_t>(id.tid)) *
                       0x9E3779B97F4A7C15ull;
    KnownTrack& known = tracks_[mixed >> 60];
    if (!known.known || known.id != id) known = {id, all_.track(id), true};
    return known.number;
}

}  // namespace dftrace
