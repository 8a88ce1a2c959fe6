// Interning of names.
#include "dftrace/text/names.hpp"

#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <unordered_map>

#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

struct Names {
    std::mutex mutex;
    std::deque<std::string> json{std::string()};  // number 0 is "none"
    std::unordered_map<std::string, std::uint32_t> numbers;
};

// Never destroyed: threads may still record while the process's statics go.
Names& names() {
    static Names* const table = new Names;
    return *table;
}

std::uint32_t intern(std::string json) {
    Names& table = names();
    std::lock_guard lock(table.mutex);
    if (const auto known = table.numbers.find(json); known != table.numbers.end()) return known->second;
    const auto number = static_cast<std::uint32_t>(table.json.size());
    table.json.push_back(json);
    table.numbers.emplace(std::move(json), number);
    return number;
}

// A pair and its number. Without a destructor: a thread may still record while its own things go.
class Recent {
  public:
    bool is(std::string_view category, std::string_view name) const noexcept {
        return number_ && category_bytes_ == category.size() && name_bytes_ == name.size() &&
               std::memcmp(text_, category.data(), category.size()) == 0 &&
               std::memcmp(text_ + category.size(), name.data(), name.size()) == 0;
    }
    std::uint32_t number() const noexcept { return number_; }
    void keep(std::string_view category, std::string_view name, std::uint32_t number) noexcept {
        if (category.size() + name.size() > sizeof text_) return;
        category.copy(text_, category.size());
        name.copy(text_ + category.size(), name.size());
        category_bytes_ = static_cast<std::uint8_t>(category.size());
        name_bytes_ = static_cast<std::uint8_t>(name.size());
        number_ = number;
    }

  private:
    std::uint32_t number_;
    std::uint8_t category_bytes_, name_bytes_;
    char text_[58];
};

}  // namespace

std::uint32_t intern_name(std::string_view category, std::string_view name) {
    // What a thread tells again and again is found without the lock.
    thread_local std::array<Recent, 16> recent;
    Recent& kept = recent[(std::hash<std::string_view>()(name) + category.size()) % recent.size()];
    if (kept.is(category, name)) return kept.number();
    std::string json = "\"name\":";
    append_json_string(json, name);
    json += ",\"cat\":";
    append_json_string(json, category);
    const std::uint32_t number = intern(std::move(json));
    kept.keep(category, name, number);
    return number;
}

std::uint32_t intern_exception_type(std::string_view type) noexcept {
    try {
        std::string json;
        append_json_string(json, type);
        return intern(std::move(json));
    } catch (const std::bad_alloc&) {
        return 0;
    }
}

std::uint32_t interned_names() noexcept {
    Names& table = names();
    std::lock_guard lock(table.mutex);
    return static_cast<std::uint32_t>(table.json.size());
}

std::string interned_json(std::uint32_t id) {
    Names& table = names();
    std::lock_guard lock(table.mutex);
    return id < table.json.size() ? table.json[id] : std::string();
}

void names_after_fork() noexcept { new (&names().mutex) std::mutex; }

}  // namespace dftrace
