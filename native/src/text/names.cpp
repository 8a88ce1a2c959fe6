// Interning of names.
#include "dftrace/text/names.hpp"

#include <deque>
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

}  // namespace

std::uint32_t intern_name(std::string_view category, std::string_view name) {
    std::string json = "\"name\":";
    append_json_string(json, name);
    json += ",\"cat\":";
    append_json_string(json, category);
    return intern(std::move(json));
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
