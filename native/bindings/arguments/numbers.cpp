// Names that numbers were given by, sets of numbers, and their text.
#include "arguments/numbers.hpp"

#include <algorithm>
#include <charconv>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "arguments/json_args.hpp"
#include "arguments/update_sets.hpp"
#include "dftrace/text/json_string.hpp"

namespace dftrace::py {

namespace {

constexpr std::size_t most_keys = 64;
constexpr Py_ssize_t longest_key = 64;
constexpr std::uint8_t named_keys = 4;  // those of the Python signature, which come first

// The names that numbers were given by, for as long as the process lives.
struct Key {
    PyObject* name;    // interned, so that the same name is the same object
    std::string text;  // `,"step":`
};
struct Keys {
    std::size_t count = 0;
    std::array<Key, most_keys> known;
};

std::string text_of_key(std::string_view name) {
    std::string text = ",";
    append_json_string(text, name);
    text.push_back(':');
    return text;
}

std::size_t learn(Keys& keys, PyObject* name) {
    // What a call means by them is told by the Python side.
    constexpr std::array<std::string_view, 4> not_arguments{"args", "enable", "metadata", "self"};
    if (keys.count == most_keys || !PyUnicode_CheckExact(name) || !PyUnicode_CHECK_INTERNED(name) ||
        !PyUnicode_IS_COMPACT_ASCII(name) || PyUnicode_GET_LENGTH(name) > longest_key)
        return most_keys;
    const std::string_view text(static_cast<const char*>(PyUnicode_DATA(name)),
                                static_cast<std::size_t>(PyUnicode_GET_LENGTH(name)));
    if (is_reserved_key(text) ||
        std::find(not_arguments.begin(), not_arguments.end(), text) != not_arguments.end())
        return most_keys;
    try {
        keys.known[keys.count] = {name, text_of_key(text)};
    } catch (const std::bad_alloc&) {
        return most_keys;
    }
    Py_INCREF(name);
    return keys.count++;
}

Keys& known_keys() {
    static Keys* const keys = [] {
        auto made = std::make_unique<Keys>();
        for (const char* name : {"epoch", "step", "image_idx", "image_size"})
            learn(*made, PyUnicode_InternFromString(name));
        return made.release();
    }();
    return *keys;
}

inline std::size_t number_of_key(Keys& keys, PyObject* name) {
    for (std::size_t i = 0; i < keys.count; ++i)
        if (keys.known[i].name == name) return i;
    return learn(keys, name);
}

}  // namespace

bool Numbers::put(std::uint8_t key, std::int64_t value) noexcept {
    std::size_t at = 0;
    while (at < count && keys[at] != key) ++at;
    if (at == most) return false;
    keys[at] = key;
    values[at] = value;
    count = std::max(count, at + 1);
    return true;
}

bool Numbers::operator==(const Numbers& other) const noexcept {
    if (count != other.count) return false;
    for (std::size_t i = 0; i < count; ++i)
        if (keys[i] != other.keys[i] || values[i] != other.values[i]) return false;
    return true;
}

bool read_numbers(PyObject* const* values, PyObject* names, Numbers& numbers) {
    const std::size_t count = names ? static_cast<std::size_t>(PyTuple_GET_SIZE(names)) : 0;
    if (count > Numbers::most) return false;
    Keys& keys = known_keys();
    bool in_order = true;
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t key = number_of_key(keys, PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)));
        if (key == most_keys) return false;
        if (key < named_keys && values[i] == Py_None) continue;
        int overflow = 1;
        if (!PyLong_CheckExact(values[i])) return false;
        const long long value = PyLong_AsLongLongAndOverflow(values[i], &overflow);
        if (overflow || value == no_number) return false;
        const std::size_t at = numbers.count++;
        numbers.keys[at] = static_cast<std::uint8_t>(key);
        numbers.values[at] = value;
        in_order = in_order && (at == 0 || key >= named_keys || numbers.keys[at - 1] < key);
    }
    if (in_order) return true;
    // The named ones in the order of the signature, the free ones behind them as they come.
    for (std::size_t i = 1; i < numbers.count; ++i)
        for (std::size_t k = i;
             k > 0 && numbers.keys[k] < named_keys && numbers.keys[k - 1] > numbers.keys[k]; --k) {
            std::swap(numbers.keys[k], numbers.keys[k - 1]);
            std::swap(numbers.values[k], numbers.values[k - 1]);
        }
    return true;
}

bool learn_key(const char* name, std::uint8_t& key) {
    const Ref text(PyUnicode_InternFromString(name));
    const std::size_t number = text ? number_of_key(known_keys(), text.get()) : most_keys;
    if (number == most_keys && !PyErr_Occurred()) PyErr_NoMemory();
    key = static_cast<std::uint8_t>(number);
    return number != most_keys;
}

bool has_key(PyObject* dict, std::uint8_t key) {
    const bool found = PyDict_GetItemWithError(dict, known_keys().known[key].name) != nullptr;
    if (PyErr_Occurred()) PyErr_Clear();
    return found;
}

bool put_into(PyObject* dict, const Numbers& numbers) {
    for (std::size_t i = 0; i < numbers.count; ++i) {
        const Ref value(PyLong_FromLongLong(numbers.values[i]));
        if (!value || PyDict_SetItem(dict, known_keys().known[numbers.keys[i]].name, value.get()) < 0)
            return false;
    }
    return true;
}

namespace {

// Guarded by the GIL, as are the counts of users.
NumberSet* free_sets = nullptr;
// The last one made by a call: the nodes of a step are called with the same numbers one after the other.
NumberSet* last_set = nullptr;

void release_snapshot(NumberSet* set) noexcept {
    if (set->generation && set->generation == *detail::live_generation)
        if (Session* session = current_session()) session->release_arguments(set->snapshot);
    set->generation = 0;
}

}  // namespace

void put_away(NumberSet* set) noexcept {
    release_snapshot(set);
    set->next = free_sets;
    free_sets = set;
}

NumberSet* take_numbers(std::uint64_t over, const Numbers& numbers) noexcept {
    NumberSet* set = last_set;
    if (set && set->over == over && set->numbers == numbers) {
        ++set->users;
        return set;
    }
    if (!set || set->users > 1) {  // else nobody needs it but this place
        if (set) --set->users;
        last_set = set = free_sets ? std::exchange(free_sets, free_sets->next) : new (std::nothrow) NumberSet;
        if (!set) return nullptr;
        set->generation = 0;
        set->users = 1;
    }
    set->numbers = numbers;
    set->over = over;
    set->stored = false;
    set->merge = 0;
    ++set->users;
    return set;
}

bool is_plain(Arguments* arguments) {
    if (!arguments || arguments->kind != Arguments::Kind::unknown)
        return !arguments || arguments->kind == Arguments::Kind::plain;
    constexpr Py_ssize_t most_members = 16, longest_text = 256;
    arguments->kind = Arguments::Kind::other;
    if (!arguments->values || PyDict_GET_SIZE(arguments->values) > most_members) return false;
    PyObject *name = nullptr, *value = nullptr;
    Py_ssize_t at = 0;
    while (PyDict_Next(arguments->values, &at, &name, &value)) {
        if (!PyUnicode_CheckExact(name) || !PyUnicode_IS_COMPACT_ASCII(name) ||
            PyUnicode_GET_LENGTH(name) > longest_key)
            return false;
        const bool text = PyUnicode_CheckExact(value) && PyUnicode_GET_LENGTH(value) <= longest_text;
        if (!text && !PyLong_CheckExact(value) && !PyFloat_CheckExact(value) && !PyBool_Check(value))
            return false;
        if (is_reserved_key({static_cast<const char*>(PyUnicode_DATA(name)),
                             static_cast<std::size_t>(PyUnicode_GET_LENGTH(name))}))
            return false;
    }
    arguments->kind = Arguments::Kind::plain;
    return true;
}

namespace {

// `,"step":3`, of which each letter of the name may be six, and the end of it.
constexpr std::size_t longest_number = 6 * static_cast<std::size_t>(longest_key) + 4 + 20;

char* put_number(char* out, const Numbers& numbers, std::size_t i) noexcept {
    const std::string& key = known_keys().known[numbers.keys[i]].text;
    out += key.copy(out, key.size());
    return std::to_chars(out, out + 20, numbers.values[i]).ptr;
}

void append_number(std::string& out, const Numbers& numbers, std::size_t i) {
    std::array<char, longest_number> text;
    out.append(text.data(), put_number(text.data(), numbers, i));
}

// The members of `plain` with the numbers in their place, and those that it has not behind it.
void append_over(std::string& out, const PlainText& plain, const Numbers& numbers) {
    const std::string_view text = plain.text;
    std::array<bool, Numbers::most> put{};
    std::size_t from = 0;
    for (const PlainText::Member& member : plain.members) {
        const std::string_view key = text.substr(member.begin, member.key_bytes);
        for (std::size_t i = 0; i < numbers.count; ++i) {
            if (key != known_keys().known[numbers.keys[i]].text) continue;
            out.append(text.substr(from, member.begin - from));
            append_number(out, numbers, i);
            from = member.end;
            put[i] = true;
        }
    }
    out.append(text.substr(from));
    for (std::size_t i = 0; i < numbers.count; ++i)
        if (!put[i]) append_number(out, numbers, i);
}

std::optional<std::uint32_t> put_over(Arguments& over, const Numbers& numbers, std::uint32_t& instead_of,
                                      Thread* thread) {
    static std::string members;  // no code of the user runs between here and where it is stored
    std::uint64_t sanitised = 0;
    try {
        members.clear();
        append_over(members, plain_text(&over, thread->generation, sanitised), numbers);
    } catch (const std::bad_alloc&) {
        members.clear();
        sanitised = 1;
    }
    Session* const session = thread->session;
    const std::optional<std::uint32_t> stored = session->put_arguments(members, instead_of);
    if (stored) session->count_sanitised(sanitised);
    return stored;
}

}  // namespace

std::optional<std::uint32_t> put_numbers(const Numbers& numbers, std::uint32_t& instead_of,
                                         Thread* thread) noexcept {
    std::array<char, Numbers::most * longest_number> text;
    char* end = text.data();
    for (std::size_t i = 0; i < numbers.count; ++i) end = put_number(end, numbers, i);
    return thread->session->put_arguments({text.data(), static_cast<std::size_t>(end - text.data())},
                                          instead_of);
}

std::optional<std::uint32_t> snapshot_of(NumberSet* set, Arguments* over, Thread* thread) {
    const std::uint64_t generation = thread->generation;
    if (set->stored && set->generation == generation) return set->snapshot;
    if (set->generation != generation) set->snapshot = 0;
    set->generation = generation;
    set->stored = false;
    const std::optional<std::uint32_t> stored = over ? put_over(*over, set->numbers, set->snapshot, thread)
                                                     : put_numbers(set->numbers, set->snapshot, thread);
    if (!stored) return stored;
    set->snapshot = *stored;
    set->stored = true;
    return stored;
}

}  // namespace dftrace::py
