// Taking apart JSON that is sound, as the checks of `json_check.hpp` have found.
#pragma once

#include <string_view>

namespace dftrace {

// Takes the first of the parts off that commas separate, without the blanks around it. Empty behind the last.
std::string_view next_json_part(std::string_view& rest) noexcept;
// The value of a member of `,"epoch":1,"step":7`; empty where there is none of that key.
std::string_view json_member(std::string_view members, std::string_view key) noexcept;

}  // namespace dftrace
