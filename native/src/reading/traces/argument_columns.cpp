// Members of arguments: in one pass over each, as the recorder writes them; of others by following JSON.
#include "dftrace/reading/traces/argument_columns.hpp"

#include <algorithm>
#include <cstring>

#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/text/digits.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/text/json_walk.hpp"

namespace dftrace {

namespace {

// Members behind these are walked over without remembering what they were.
constexpr std::size_t most_steps = 64;
// A text that is not wanted is known again up to so many bytes.
constexpr std::size_t most_known = 64;
// What an entry of a dictionary takes beside its text.
constexpr std::size_t entry_bytes = 96;

// What ends a value that is no text.
constexpr auto ends = [] {
    std::array<bool, 256> found{};
    for (const unsigned char c : {',', '}', '{', '[', ' ', '\t', '\r'}) found[c] = true;
    return found;
}();

bool ends_value(char c) noexcept { return ends[static_cast<unsigned char>(c)]; }

bool is_text(std::string_view value) noexcept { return !value.empty() && value.front() == '"'; }

// As `whole_value` of up to 18 digits; false for anything else.
bool short_number(std::string_view value, std::int64_t& number) noexcept {
    if (value.empty() || value.size() > 18) return false;
    // Behind what stands in a block there are more bytes than eight.
    if (value.size() <= 8) {
        const std::uint64_t word = word_at(value.data());
        if (count_digits(word) < value.size()) return false;
        number = number_of_digits(word, static_cast<unsigned>(value.size()));
        return true;
    }
    std::int64_t found = 0;
    for (const char c : value) {
        const auto digit = static_cast<unsigned>(c - '0');
        if (digit > 9) return false;
        found = 10 * found + digit;
    }
    number = found;
    return true;
}

}  // namespace

ArgumentColumns::ArgumentColumns(std::vector<WantedMember> wanted, std::uint8_t phase, Budget& budget)
    : wanted_(std::move(wanted)), phase_(phase), budget_(budget) {}

void ArgumentColumns::take(const Rows& rows, std::span<const std::uint8_t> phases, std::string_view block,
                           std::span<const std::uint8_t> labels) {
    rows_.clear();
    values_.clear();
    for (std::size_t row = 0; row < rows.size; ++row) {
        const std::uint32_t label = rows.label[row];
        if (label >= labels.size() || !labels[label] || (phase_ && phases[row] != phase_)) continue;
        const std::size_t at = rows.args_at[row];
        const std::string_view args =
            at ? block.substr(at - 1, std::size_t{rows.args_bytes[row]} + 2) : std::string_view("{}");
        add(static_cast<std::uint32_t>(row), args, told_[label % told_.size()]);
    }
}

void ArgumentColumns::add(std::uint32_t row, std::string_view args, Told& told) {
    rows_.push_back(row);
    const std::size_t before = values_.size();
    values_.resize(before + wanted_.size(), no_time);
    std::int64_t* const into = values_.data() + before;
    if (wanted_.size() == 1 && wanted_[0].form == WantedMember::Form::all) {
        *into = place_of(args);
        return;
    }
    if (args.size() == 2) return;  // an event without any, which lie in no block
    if (walk_pattern(args, told, into)) return;
    if (walk_plain(args, told, into)) {
        if (told.pattern.learn(args)) learn_pattern(args, told, into);
        return;
    }
    std::fill(into, into + wanted_.size(), no_time);
    JsonWalk(args).members([&](std::string_view key, std::string_view value) {
        take_member(text_of_json_string(key), value, into);
    });
}

// Returns false where something else than numbers is told otherwise.
bool ArgumentColumns::walk_pattern(std::string_view args, Told& told, std::int64_t* into) {
    const char* at = args.data();
    const bool same = told.pattern.pass(at, [&](const char*& number, std::size_t which) {
        const char* const from = number;
        if (!pass_json_number(number)) return false;
        if (const std::int32_t place = told.places[which]; place >= 0)
            into[place] = value_of(wanted_[static_cast<std::size_t>(place)].form,
                                   {from, static_cast<std::size_t>(number - from)});
        return true;
    });
    if (!same || at != args.data() + args.size()) {
        std::fill(into, into + wanted_.size(), no_time);
        return false;
    }
    for (std::size_t place = 0; place < wanted_.size(); ++place)
        if (told.values[place] != no_time) into[place] = told.values[place];
    return true;
}

// Of arguments that were walked over: each number is a member's.
void ArgumentColumns::learn_pattern(std::string_view args, Told& told, const std::int64_t* found) {
    told.values.assign(found, found + wanted_.size());
    told.places.fill(-1);
    std::vector<bool> seen(wanted_.size());
    std::size_t number = 0;
    bool well = true;
    JsonWalk(args).members([&](std::string_view key, std::string_view value) {
        const bool is_number = value[0] == '-' || (value[0] >= '0' && value[0] <= '9');
        for (std::size_t place = 0; place < wanted_.size(); ++place) {
            if (wanted_[place].name != key.substr(1, key.size() - 2)) continue;
            well &= !seen[place] && (!is_number || told.places[number] < 0);
            seen[place] = true;
            if (!is_number) continue;
            told.places[number] = static_cast<std::int32_t>(place);
            told.values[place] = no_time;
        }
        number += is_number;
    });
    if (!well || number != told.pattern.numbers()) told.pattern = {};
}

// Returns false where there are blanks, escapes, or what holds others.
bool ArgumentColumns::walk_plain(std::string_view args, Told& told, std::int64_t* into) {
    std::vector<Step>& steps = told.steps;
    const char *at = args.data() + 1, *const stop = args.data() + args.size();
    for (std::size_t number = 0; at < stop && *at == '"'; ++number) {
        if (number == steps.size() && number < most_steps) steps.emplace_back();
        Step* const step = number < steps.size() ? &steps[number] : nullptr;
        const char* key_end = at;
        if (step && step->key.size() < static_cast<std::size_t>(stop - at) && !step->key.empty() &&
            std::memcmp(at, step->key.data(), step->key.size()) == 0) {
            key_end += step->key.size();
        } else {
            const auto* const quote =
                static_cast<const char*>(std::memchr(at + 1, '"', static_cast<std::size_t>(stop - at) - 1));
            if (!quote || stop - quote < 3 || quote[1] != ':') return false;
            key_end = quote + 2;
            const std::string_view key(at, static_cast<std::size_t>(key_end - at));
            if (key.find('\\') != key.npos) return false;
            if (step) learn(*step, key);
        }
        const char* end = key_end;
        if (*end == '"') {
            const std::size_t room = static_cast<std::size_t>(stop - end);
            // Many texts are those of the event before: the same up to the quote behind them.
            if (step && is_text(step->text) && step->text.size() < room &&
                std::memcmp(end, step->text.data(), step->text.size()) == 0) {
                end += step->text.size();
            } else {
                end = static_cast<const char*>(std::memchr(end + 1, '"', room - 1));
                if (!end++) return false;
                const std::string_view value(key_end, static_cast<std::size_t>(end - key_end));
                if (value.find('\\') != value.npos) return false;
                if (step && step->wanted.empty())
                    step->text = value.substr(0, value.size() <= most_known ? value.npos : 0);
            }
        } else {
            while (end < stop && !ends_value(*end)) ++end;
        }
        if (end >= stop || (*end != ',' && *end != '}')) return false;
        const std::string_view value(key_end, static_cast<std::size_t>(end - key_end));
        if (!step) {
            take_member({at + 1, static_cast<std::size_t>(key_end - at) - 3}, value, into);
        } else {
            for (const std::uint32_t place : step->wanted) {
                const WantedMember::Form form = wanted_[place].form;
                if (form != WantedMember::Form::text) {
                    into[place] = value_of(form, value);
                    continue;
                }
                if (step->text != value) {
                    step->place = place_of(value);
                    step->text = value;
                }
                into[place] = step->place;
            }
        }
        at = end + 1;
    }
    return at >= stop || (*at == '}' && at + 1 == stop);
}

void ArgumentColumns::learn(Step& step, std::string_view key) {
    step.key = key;
    step.wanted.clear();
    step.text.clear();
    const std::string_view name = key.substr(1, key.size() - 3);
    for (std::size_t place = 0; place < wanted_.size(); ++place)
        if (wanted_[place].name == name) step.wanted.push_back(static_cast<std::uint32_t>(place));
}

void ArgumentColumns::take_member(std::string_view key, std::string_view value, std::int64_t* into) {
    for (const WantedMember& one : wanted_) {
        if (one.name == key) *into = value_of(one.form, value);
        ++into;
    }
}

std::int64_t ArgumentColumns::value_of(WantedMember::Form form, std::string_view value) {
    if (form == WantedMember::Form::text) return place_of(value);
    std::int64_t number;
    if (form == WantedMember::Form::whole)
        return short_number(value, number) ? number : whole_value(value).value_or(no_time);
    // As the recorder writes them: with three decimals.
    const std::size_t point = value.size() < 4 ? 0 : value.size() - 4;
    std::int64_t decimals;
    if (point && value[point] == '.' && point <= 12 && short_number(value.substr(0, point), number) &&
        short_number(value.substr(point + 1), decimals))
        return 1000 * number + decimals;
    const bool numeric = !value.empty() && (value[0] == '-' || (value[0] >= '0' && value[0] <= '9'));
    return numeric ? ns_of_micros(value).value_or(no_time) : no_time;
}

std::int64_t ArgumentColumns::place_of(std::string_view value) {
    if (const auto known = written_.find(value); known != written_.end()) return known->second;
    std::string text = is_text(value) ? text_of_json_string(value) : std::string(value);
    budget_.take(2 * entry_bytes + value.size() + 2 * text.size());
    const auto [found, is_new] = places_.try_emplace(text, static_cast<std::int64_t>(texts_.size()));
    if (is_new) texts_.push_back(std::move(text));
    written_.emplace(value, found->second);
    return found->second;
}

}  // namespace dftrace
