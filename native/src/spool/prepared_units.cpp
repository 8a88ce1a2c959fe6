// Room for units that nobody needs yet.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "dftrace/spool/spool.hpp"

namespace dftrace {

namespace {

// Maps all pages. Others may store there at this very moment, and lose nothing.
void map_pages(char* from, std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
    if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0 || errno != EINVAL) return;
#endif
    // An older kernel has no such call.
    constexpr std::size_t page = 4096;
    for (std::size_t at = 0; at < bytes; at += page)
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(from + at)).fetch_or(0, std::memory_order_relaxed);
}

}  // namespace

void Spool::prepare(std::uint32_t wanted) noexcept {
    // So many times at most: a thread may take them as fast as they are made, and there is other work to do.
    for (std::uint32_t made = 0; made < wanted; ++made)
        if (!prepare_one(wanted)) return;
}

// False where there is enough, or no more is to be had.
bool Spool::prepare_one(std::uint32_t wanted) noexcept {
    std::uint32_t index;
    int file;
    {
        const std::lock_guard lock(mutex_);
        index = std::max(prepared_units_, used_units_);
        if (free_.size() + (index - used_units_) >= wanted) return false;
        if ((std::size_t{index} + 1) * unit_bytes > limit_bytes_) return false;
        file = file_.descriptor();
    }
    // Without the lock, for which who records would wait. Should that one take the unit meanwhile, it has
    // reserved it as well, which is no harm.
    const std::size_t from = std::size_t{index} * unit_bytes;
    if (file < 0 || reserve_room_in_use(file, from, unit_bytes) != 0) return false;
    map_pages(base_ + from, unit_bytes);
    const std::lock_guard lock(mutex_);
    prepared_units_ = std::max(prepared_units_, index + 1);
    return true;
}

void Spool::give_back_prepared() noexcept {
    for (;;) {
        // One at a time: who records may want the lock. With it, since what is taken must not be let go.
        const std::lock_guard lock(mutex_);
        if (prepared_units_ <= used_units_) return;
        // By the mapping, not by the number of the file, which may be somebody else's by now. Not every file
        // system lets go of a part of a file: there it stays, for whoever needs it.
        if (madvise(unit(prepared_units_ - 1), unit_bytes, MADV_REMOVE) != 0) return;
        --prepared_units_;
    }
}

}  // namespace dftrace
