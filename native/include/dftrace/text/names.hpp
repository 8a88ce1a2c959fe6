// The process-wide table of names of events and of types of exceptions, each with a small number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dftrace {

// Number of the pair; the same for the same pair, for the life of the process. Thread-safe.
std::uint32_t intern_name(std::string_view category, std::string_view name);
// Number of an exception's type, as a JSON string; 0 when there is no memory for it.
std::uint32_t intern_exception_type(std::string_view type) noexcept;

// How many numbers are given out, plus one.
std::uint32_t interned_names() noexcept;
// The JSON that stands for a number: `"name":"forward","cat":"compute"`, or `"ValueError"`.
std::string interned_json(std::uint32_t id);

// In a forked child: a lock held by a thread that is not there is replaced.
void names_after_fork() noexcept;

}  // namespace dftrace
