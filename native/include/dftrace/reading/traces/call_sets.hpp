// Calls of many ranks: an order by small numbers, and what is odd about those that belong together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace dftrace {

// A column of numbers, or one number for all rows.
struct CallColumn {
    const std::int64_t* values = nullptr;
    std::size_t step = 1;  // 0 for one number
    std::int64_t operator[](std::size_t row) const noexcept { return values[row * step]; }
};

// Rows in the order of keys from 0 to below `width`, those of one key as they stand; returns where each key
// that there is begins. False where a key is none of these.
bool order_by_keys(std::span<const std::int64_t> keys, std::size_t width, std::int64_t* order,
                   std::vector<std::int64_t>& first);

struct CallColumns {
    CallColumn rank, name, start, end, until, bytes;
};

// What is odd about sets, in bits.
enum SetFlag : std::uint8_t {
    other_names = 1,   // names that follow each other differ
    same_names = 2,    // names that follow each other do not
    mixed_bytes = 4,   // bytes that follow each other differ, though they should not
    rank_twice = 8,    // ranks that follow each other are one
    left_before = 16,  // on one clock somebody left before another had come
    without_end = 32,  // the end of a call says nothing
};

// The flags of each set of rows; `clock` of each rank, `any_bytes` of each name whether bytes may differ.
void flag_sets(const CallColumns& calls, std::span<const std::int64_t> rows,
               std::span<const std::int64_t> first, std::span<const std::int64_t> clock,
               std::span<const std::uint8_t> any_bytes, std::int64_t last_until, std::uint8_t* flags);

}  // namespace dftrace
