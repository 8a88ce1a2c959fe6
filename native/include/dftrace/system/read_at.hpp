// Reading from a place in a file, whose own position other threads go by.
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef _WIN32
#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <io.h>
#include <windows.h>

#include <algorithm>
#include <cerrno>
#else
#include <unistd.h>
#endif

namespace dftrace {

// How many bytes were read, 0 at the end of the file, or -1 with errno set.
inline std::ptrdiff_t read_at(int file, void* into, std::size_t bytes, std::uint64_t place) noexcept {
#ifdef _WIN32
    constexpr std::size_t most = std::size_t{1} << 30;
    OVERLAPPED from{};
    from.Offset = static_cast<DWORD>(place);
    from.OffsetHigh = static_cast<DWORD>(place >> 32);
    DWORD got = 0;
    if (ReadFile(reinterpret_cast<HANDLE>(_get_osfhandle(file)), into,
                 static_cast<DWORD>(std::min(bytes, most)), &got, &from))
        return static_cast<std::ptrdiff_t>(got);
    if (GetLastError() == ERROR_HANDLE_EOF) return 0;
    errno = EIO;
    return -1;
#else
    return pread(file, into, bytes, static_cast<off_t>(place));
#endif
}

}  // namespace dftrace
