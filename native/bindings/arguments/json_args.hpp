// Python arguments to the JSON members of an event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "python.hpp"

namespace dftrace::py {

// Longest string and longest whole that is kept, in bytes; set from the configuration.
extern std::size_t max_arg_bytes;

// Appends `,"key":value` for each item of `dict`. Never raises: what JSON or Perfetto cannot hold
// is written as a safe value, and the return value says how often that was.
std::uint64_t append_members(std::string& out, PyObject* dict);
// The JSON members of plain values, and where each is, for numbers that take the place of some.
struct PlainText {
    struct Member {
        std::size_t begin;
        std::size_t key_bytes;  // `,"step":`
        std::size_t end;
    };
    std::string text;
    std::vector<Member> members;
    std::uint64_t generation = 0;  // session that it is for: what is too long differs
    std::uint64_t sanitised = 0;
};

// The same for plain values alone, which run no code; and where each member is.
std::uint64_t append_plain(std::string& out, PyObject* dict, std::vector<PlainText::Member>& members);
// Whether the line itself has a member of that name.
bool is_reserved_key(std::string_view key) noexcept;
// The same as `append_members` for one value.
std::uint64_t append_value(std::string& out, PyObject* value);

// Held while the user's code converts a value (`__str__`, `__float__`, the attributes of a tensor), which may
// record and so come here again. Inside, only values that need none of the user's code are converted: what
// else there is stands as `<its type>`, so that a value that records itself does not do so without end.
class Converting {
  public:
    Converting() noexcept { ++depth; }
    ~Converting() { --depth; }
    Converting(const Converting&) = delete;
    Converting& operator=(const Converting&) = delete;
    static bool again() noexcept { return depth > 1; }
    static bool under_way() noexcept { return depth > 0; }

  private:
    static thread_local int depth;
};

// The text of a string as UTF-8 (lone surrogates replaced), or what str() makes of anything else.
std::string text_of(PyObject* object);

}  // namespace dftrace::py
