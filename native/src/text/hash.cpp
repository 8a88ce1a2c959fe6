// FNV-1a.
#include "dftrace/text/hash.hpp"

#include <cstdint>

namespace dftrace {

std::string hash_hex(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325u;
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    std::string out(16, '0');
    for (int i = 15; i >= 0; --i, hash >>= 4)
        out[static_cast<std::size_t>(i)] = "0123456789abcdef"[hash & 15];
    return out;
}

}  // namespace dftrace
