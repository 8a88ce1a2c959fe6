// A thread of our own that may run out of memory begins with this.
#pragma once

#include <new>

namespace dftrace {

// The first exception of a thread takes memory, and would end the process where there is none.
inline void throw_first_exception() noexcept {
    try {
        throw std::bad_alloc();
    } catch (const std::bad_alloc&) {
    }
}

}  // namespace dftrace
