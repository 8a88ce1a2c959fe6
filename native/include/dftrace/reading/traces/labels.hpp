// The names and tracks of traces as numbers: one dictionary for all threads that read, and a memory of what
// it has met for each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "dftrace/index/budget.hpp"

namespace dftrace {

struct Label {
    std::string category;
    std::string name;
};

struct TrackId {
    std::int64_t pid = 0;
    std::int64_t tid = 0;
    bool operator==(const TrackId&) const = default;
};

class Labels {
  public:
    explicit Labels(Budget& budget) : budget_(budget) {}
    Labels(const Labels&) = delete;
    Labels& operator=(const Labels&) = delete;

    std::uint32_t number(std::string_view category, std::string_view name);
    std::uint32_t track(const TrackId& id);
    // What stands in a line may be spelt in several ways that mean one name.
    struct Spelling {
        std::string text;
        std::uint32_t label;
    };
    // `text` is `name","cat":"category`, the name taking its first `name_bytes`. Nothing where it is no JSON.
    const Spelling* spelling(std::string_view text, std::size_t name_bytes);

    std::size_t size() const;
    std::size_t tracks() const;
    // Stands where it is while others are added.
    const Label& operator[](std::uint32_t number) const;
    TrackId track_id(std::uint32_t number) const;

  private:
    struct TrackHash {
        std::size_t operator()(const TrackId& id) const noexcept {
            return static_cast<std::size_t>(static_cast<std::uint64_t>(id.pid) * 0x9E3779B97F4A7C15ull ^
                                            static_cast<std::uint64_t>(id.tid) * 0xC2B2AE3D27D4EB4Full);
        }
    };
    std::uint32_t number_unlocked(std::string_view category, std::string_view name);

    Budget& budget_;
    mutable std::mutex lock_;
    std::deque<Label> labels_;
    std::unordered_map<std::string, std::uint32_t> numbers_;
    std::unordered_map<std::string_view, const Spelling*> spelt_;
    std::deque<Spelling> spellings_;
    std::deque<TrackId> track_ids_;
    std::unordered_map<TrackId, std::uint32_t, TrackHash> track_numbers_;
};

// What one thread has met: found without a lock.
class KnownLabels {
  public:
    explicit KnownLabels(Labels& labels) : all_(labels), table_(256), tracks_(16) {}

    // As `Labels::spelling`. Eight bytes behind the text can be read.
    const Labels::Spelling* spelling(const char* text, std::size_t bytes, std::size_t name_bytes);
    std::uint32_t track(const TrackId& id);

  private:
    struct Entry {
        std::uint64_t hash = 0;
        const Labels::Spelling* spelling = nullptr;
    };
    struct KnownTrack {
        TrackId id;
        std::uint32_t number = 0;
        bool known = false;
    };
    void place(const Entry& entry) noexcept;

    Labels& all_;
    std::vector<Entry> table_;
    std::size_t used_ = 0;
    std::vector<KnownTrack> tracks_;
};

}  // namespace dftrace
