// Members of arguments: in one pass over each, as the recorder writes them; of others by following JSON.
#include "dftrace/reading/traces/argument_columns.hpp"

#include <algorithm>
#include <unordered_map>

#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/text/json_walk.hpp"

namespace dftrace {

namespace {

class Columns {
  public:
    explicit Columns(std::span<const WantedMember> wanted) : wanted_(wanted) {
        for (const WantedMember& one : wanted) lengths_ |= bit_of(one.name);
    }

    void add(std::uint32_t row, std::string_view args) {
        found_.rows.push_back(row);
        const std::size_t before = found_.values.size();
        found_.values.resize(before + wanted_.size(), no_time);
        if (walk_plain(args)) return;
        std::fill(found_.values.begin() + static_cast<std::ptrdiff_t>(before), found_.values.end(), no_time);
        JsonWalk(args).members(
            [&](std::string_view key, std::string_view value) { take(text_of_json_string(key), value); });
    }

    ArgumentColumns found() && { return std::move(found_); }

  private:
    // Returns false where there are blanks, escapes, or what holds others.
    bool walk_plain(std::string_view args) {
        std::size_t at = 1;
        while (at < args.size() && args[at] == '"') {
            const std::size_t key_end = args.find('"', at + 1), from = key_end + 2;
            if (key_end == args.npos || from >= args.size() || args[key_end + 1] != ':') return false;
            std::size_t end = from;
            if (args[from] == '"') {
                end = args.find('"', from + 1);
                if (end++ == args.npos) return false;
            } else {
                while (end < args.size() && !ends_value(args[end])) ++end;
            }
            if (end >= args.size() || (args[end] != ',' && args[end] != '}')) return false;
            const std::string_view key = args.substr(at + 1, key_end - at - 1);
            const std::string_view value = args.substr(from, end - from);
            if (key.find('\\') != key.npos || value.find('\\') != value.npos) return false;
            take(key, value);
            at = end + 1;
        }
        return at + 1 >= args.size();
    }

    static bool ends_value(char c) noexcept {
        return c == ',' || c == '}' || c == '{' || c == '[' || c == ' ' || c == '\t' || c == '\r';
    }

    static std::uint64_t bit_of(std::string_view name) noexcept {
        return std::uint64_t{1} << (name.size() & 63);
    }

    void take(std::string_view key, std::string_view value) {
        if (!(lengths_ & bit_of(key))) return;
        std::int64_t* into = found_.values.data() + found_.values.size() - wanted_.size();
        for (const WantedMember& one : wanted_) {
            if (one.name == key) *into = value_of(one.form, value);
            ++into;
        }
    }

    std::int64_t value_of(WantedMember::Form form, std::string_view value) {
        if (form == WantedMember::Form::text) return place_of(value);
        if (form == WantedMember::Form::whole) return whole_value(value).value_or(no_time);
        const bool number = !value.empty() && (value[0] == '-' || (value[0] >= '0' && value[0] <= '9'));
        return number ? ns_of_micros(value).value_or(no_time) : no_time;
    }

    std::int64_t place_of(std::string_view value) {
        const auto known = places_.find(value);
        if (known != places_.end()) return known->second;
        const bool is_text = !value.empty() && value.front() == '"';
        const auto place = static_cast<std::int64_t>(found_.texts.size());
        found_.texts.push_back(is_text ? text_of_json_string(value) : std::string(value));
        places_.emplace(value, place);
        return place;
    }

    std::span<const WantedMember> wanted_;
    std::uint64_t lengths_ = 0;  // that wanted names have
    ArgumentColumns found_;
    std::unordered_map<std::string_view, std::int64_t> places_;  // as they are written in the block
};

}  // namespace

ArgumentColumns argument_columns(const Rows& rows, std::string_view block,
                                 std::span<const std::uint8_t> labels, std::span<const WantedMember> wanted) {
    Columns columns(wanted);
    for (std::size_t row = 0; row < rows.size; ++row) {
        const std::uint32_t label = rows.label[row];
        if (label >= labels.size() || !labels[label]) continue;
        const std::size_t at = rows.args_at[row];
        const std::string_view args =
            at ? block.substr(at - 1, std::size_t{rows.args_bytes[row]} + 2) : std::string_view("{}");
        columns.add(static_cast<std::uint32_t>(row), args);
    }
    return std::move(columns).found();
}

}  // namespace dftrace
