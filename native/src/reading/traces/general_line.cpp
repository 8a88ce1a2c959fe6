// Lines that are not in the layout of the recorder.
#include "dftrace/reading/traces/general_line.hpp"

#include <algorithm>
#include <charconv>

#include "dftrace/text/json_check.hpp"
#include "dftrace/text/json_string.hpp"
#include "dftrace/text/json_walk.hpp"

namespace dftrace {

namespace {

constexpr int most_depth = 200;
constexpr std::int64_t most_ns = most_micros * 1000;

constexpr std::string_view blanks = " \t\r";

std::string_view stripped(std::string_view text) noexcept {
    const std::size_t first = text.find_first_not_of(blanks);
    if (first == text.npos) return {};
    return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

template <typename Number>
Number whole_number(std::string_view text, Number otherwise) noexcept {
    Number number = otherwise;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? number : otherwise;
}

bool is_numbered_phase(std::string_view value) noexcept {
    return value.size() == 1 && value[0] >= '1' && value[0] <= '4';
}

std::string letter_of_phase(std::string_view value) {
    return {numbered_phases[static_cast<std::size_t>(value[0] - '1')]};
}

bool is_text(std::string_view value) noexcept { return !value.empty() && value.front() == '"'; }

// DLIO Profiler, from which dftracer has come, writes numbers as texts. Empty for what is no number.
std::string number_in(std::string_view value) {
    std::string number = is_text(value) ? text_of_json_string(value) : std::string(value);
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const bool well = !number.empty() && (number.front() == '-' || is_digit(number.front())) &&
                      is_digit(number.back()) && is_json_value(number, 0);
    return well ? number : std::string();
}

std::uint64_t parent_of(std::string_view args) {
    std::uint64_t parent = no_parent;
    JsonWalk(args).members([&](std::string_view key, std::string_view value) {
        if (text_of_json_string(key) == "p_idx") parent = whole_number(value, no_parent);
    });
    return parent;
}

}  // namespace

std::optional<std::int64_t> ns_of_micros(std::string_view number) noexcept {
    const bool negative = !number.empty() && number.front() == '-';
    if (negative) number.remove_prefix(1);
    const std::size_t digits_end = std::min(number.find_first_of("eE"), number.size());
    std::int64_t exponent = 0;
    if (digits_end < number.size()) {
        std::string_view written = number.substr(digits_end + 1);
        const bool below = !written.empty() && written.front() == '-';
        if (!written.empty() && (below || written.front() == '+')) written.remove_prefix(1);
        for (const char c : written) exponent = std::min<std::int64_t>(10 * exponent + (c - '0'), 1 << 30);
        if (below) exponent = -exponent;
    }
    const std::string_view digits = number.substr(0, digits_end);
    const std::size_t point = std::min(digits.find('.'), digits.size());
    // The digit at `place` is worth 10^place ns; those above 10^18 are beyond what is taken.
    std::int64_t place = static_cast<std::int64_t>(point) - 1 + 3 + exponent;
    std::int64_t ns = 0;
    bool up = false;
    for (const char c : digits) {
        if (c == '.') continue;
        const std::int64_t digit = c - '0';
        if (digit != 0 && place > 18) return std::nullopt;
        if (place >= 0 && place <= 18) {
            std::int64_t worth = 1;
            for (std::int64_t i = 0; i < place; ++i) worth *= 10;
            if (digit * (worth / 1'000'000) > most_ns / 1'000'000 - ns / 1'000'000 + 1) return std::nullopt;
            ns += digit * worth;
        }
        if (place == -1) up = digit >= 5;
        --place;
    }
    ns += up;
    if (ns > most_ns) return std::nullopt;
    return negative ? -ns : ns;
}

GeneralLine read_general_line(std::string_view line) {
    GeneralLine event;
    std::string_view text = stripped(line);
    if (text.empty() || text == "[" || text == "]") {
        event.kind = GeneralLine::Kind::framing;
        return event;
    }
    if (text.back() == ',') text = stripped(text.substr(0, text.size() - 1));
    if (text.empty() || text.front() != '{' || !is_json_value(text, most_depth)) return event;
    bool named = false, phased = false;
    JsonWalk(text).members([&](std::string_view written, std::string_view value) {
        // Longer than any that is looked for, however it is written.
        if (written.size() > 64) return;
        const std::string key = text_of_json_string(written);
        if (key == "name") {
            if ((named = is_text(value))) event.name = text_of_json_string(value);
        } else if (key == "ph") {
            phased = is_text(value) || is_numbered_phase(value);
            if (phased) event.ph = is_text(value) ? text_of_json_string(value) : letter_of_phase(value);
        } else if (key == "cat") {
            event.category = is_text(value) ? text_of_json_string(value) : std::string();
        } else if (key == "id") {
            event.id = whole_number<std::uint64_t>(number_in(value), 0);
        } else if (key == "pid") {
            event.pid = whole_number<std::int64_t>(number_in(value), 0);
        } else if (key == "tid") {
            event.tid = whole_number<std::int64_t>(number_in(value), 0);
        } else if (key == "ts" || key == "dur") {
            const std::string number = number_in(value);
            const std::optional<std::int64_t> ns = number.empty() ? std::nullopt : ns_of_micros(number);
            if (key == "dur")
                event.duration = std::max<std::int64_t>(ns.value_or(-1), -1);
            else if (number.empty())
                event.start = no_time;
            else
                event.start = ns.value_or(number.front() == '-' ? -most_ns : most_ns);
        } else if (key == "args") {
            const bool object = !value.empty() && value.front() == '{';
            event.args = object ? value.substr(1, value.size() - 2) : std::string_view();
            event.parent = object ? parent_of(value) : no_parent;
        }
    });
    const bool of_stacks = event.ph == stack_phase && event.category == stack_category &&
                           (event.name == profile_name || event.name == chunk_name);
    if (named && phased) event.kind = of_stacks ? GeneralLine::Kind::samples : GeneralLine::Kind::event;
    return event;
}

std::optional<std::int64_t> whole_value(std::string_view value) {
    constexpr std::size_t most_text = std::string_view("-9223372036854775808").size();
    std::string text(value);
    if (is_text(value) && (text = text_of_json_string(value)).size() > most_text) return {};
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> whole_member(std::string_view args, std::string_view name) {
    const std::size_t at = args.rfind(name), behind = at + name.size();
    // Where nothing is escaped and no object lies within, what stands so with a colon is a member.
    const bool flat = args.find('\\') == args.npos && args.find('{', 1) == args.npos;
    if (flat && at == args.npos) return {};
    if (flat && args[behind] == ':' && blanks.find(args[behind + 1]) == blanks.npos) {
        const std::size_t from = behind + 1;
        const std::size_t end =
            args[from] == '"' ? args.find('"', from + 1) + 1 : args.find_first_of(",} \t\r", from);
        return whole_value(args.substr(from, end - from));
    }
    std::optional<std::int64_t> found;
    JsonWalk(args).members([&](std::string_view key, std::string_view value) {
        if (text_of_json_string(key) == name.substr(1, name.size() - 2)) found = whole_value(value);
    });
    return found;
}

}  // namespace dftrace
