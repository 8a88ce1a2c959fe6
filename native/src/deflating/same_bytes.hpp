// How far two places are the same, from them on and in front of them.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dftrace {

// How many bytes are the same, `most` at most.
inline std::uint32_t same_bytes(const char* older, const char* newer, std::uint32_t most) noexcept {
    std::uint32_t bytes = 0;
#if defined(__SSE2__)
    for (; bytes + 16 <= most; bytes += 16) {
        const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(older + bytes));
        const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(newer + bytes));
        const auto same = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)));
        if (same != 0xffff) return bytes + static_cast<std::uint32_t>(std::countr_one(same));
    }
#endif
    while (bytes < most && older[bytes] == newer[bytes]) ++bytes;
    return bytes;
}

// How many of the bytes in front are the same, `most` at most. Eight more than these are read.
inline std::uint32_t same_before(const char* older, const char* newer, std::uint32_t most) noexcept {
    for (std::uint32_t bytes = 0; bytes < most; bytes += 8) {
        std::uint64_t a, b;
        std::memcpy(&a, older - bytes - sizeof a, sizeof a);
        std::memcpy(&b, newer - bytes - sizeof b, sizeof b);
        if (const std::uint64_t differs = a ^ b)
            return std::min(most, bytes + static_cast<std::uint32_t>(std::countl_zero(differs)) / 8);
    }
    return most;
}

}  // namespace dftrace
