// Python arguments to the JSON members of an event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "python.hpp"

namespace dftrace::py {

// Longest string and longest whole that is kept, in bytes; set from the configuration.
extern std::size_t max_arg_bytes;

// Appends `,"key":value` for each item of `dict`. Never raises: what JSON or Perfetto cannot hold
// is written as a safe value, and the return value says how often that was.
std::uint64_t append_members(std::string& out, PyObject* dict);
// The same for one value.
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
