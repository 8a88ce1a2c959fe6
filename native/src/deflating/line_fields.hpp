// Where a line and its fields begin.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dftrace {

struct LineFields {
    static constexpr std::uint32_t most = 29;  // of those behind nothing is known
    std::uint32_t begin;
    std::uint32_t named_so_before;  // number of the last line of that name in front of it, 0: none
    std::uint16_t count;
    std::array<std::uint16_t, most> at;  // from the line's beginning: 0, then the commas, then the `}}`
};

// Which of the 16 bytes at `place` are commas, a bit for each.
inline std::uint64_t commas(const char* place) noexcept {
#if defined(__SSE2__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place));
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(','))));
#else
    std::uint64_t found = 0;
    for (unsigned i = 0; i < 16; ++i) found |= std::uint64_t{place[i] == ','} << i;
    return found;
#endif
}

// Fills in the fields of the line at `begin`, which ends before `end`, as its text does at the latest.
inline void find_fields(const char* begin, const char* end, LineFields& line) noexcept {
    constexpr std::ptrdiff_t step = 64;
    line.at[0] = 0;
    std::uint32_t count = 1;
    const auto put = [&](std::uint64_t found, std::uint32_t offset) {
        for (; found && count < LineFields::most - 1; found &= found - 1)
            line.at[count++] =
                static_cast<std::uint16_t>(offset + static_cast<unsigned>(std::countr_zero(found)));
    };
    const char* const known = end - begin > UINT16_MAX ? begin + UINT16_MAX : end;
    const char* place = begin;
    for (; known - place >= step; place += step)
        put(commas(place) | commas(place + 16) << 16 | commas(place + 32) << 32 | commas(place + 48) << 48,
            static_cast<std::uint32_t>(place - begin));
    for (; known - place >= 16; place += 16) put(commas(place), static_cast<std::uint32_t>(place - begin));
    char last[16] = {};
    std::memcpy(last, place, static_cast<std::size_t>(known - place));
    put(commas(last), static_cast<std::uint32_t>(place - begin));
    if (end == known && end - begin > 3 && end[-2] == '}' && end[-3] == '}')
        line.at[count++] = static_cast<std::uint16_t>(end - 3 - begin);
    line.count = static_cast<std::uint16_t>(count);
}

}  // namespace dftrace
