// The hash by which dftracer's lines name hosts and texts.
#pragma once

#include <string>
#include <string_view>

namespace dftrace {

// FNV-1a of `text`, as 16 hexadecimal digits (the form of dftracer's hashes).
std::string hash_hex(std::string_view text);

}  // namespace dftrace
