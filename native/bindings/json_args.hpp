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

// The text of a string as UTF-8 (lone surrogates replaced), or what str() makes of anything else.
std::string text_of(PyObject* object);

}  // namespace dftrace::py
