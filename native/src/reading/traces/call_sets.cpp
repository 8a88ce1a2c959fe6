// Sets of calls are small beside all of them, so that an order by counting takes two passes over the rows.
#include "dftrace/reading/traces/call_sets.hpp"

#include <algorithm>

namespace dftrace {

bool order_by_keys(std::span<const std::int64_t> keys, std::size_t width, std::int64_t* order,
                   std::vector<std::int64_t>& first) {
    std::vector<std::int64_t> begins(width + 1);
    for (const std::int64_t key : keys) {
        if (key < 0 || static_cast<std::size_t>(key) >= width) return false;
        ++begins[static_cast<std::size_t>(key) + 1];
    }
    first.clear();
    for (std::size_t key = 0; key < width; ++key) {
        if (begins[key + 1]) first.push_back(begins[key]);
        begins[key + 1] += begins[key];
    }
    for (std::size_t row = 0; row < keys.size(); ++row)
        order[begins[static_cast<std::size_t>(keys[row])]++] = static_cast<std::int64_t>(row);
    return true;
}

void flag_sets(const CallColumns& calls, std::span<const std::int64_t> rows,
               std::span<const std::int64_t> first, std::span<const std::int64_t> clock,
               std::span<const std::uint8_t> any_bytes, std::int64_t last_until, std::uint8_t* flags) {
    for (std::size_t set = 0; set < first.size(); ++set) {
        const auto begin = static_cast<std::size_t>(first[set]);
        const std::size_t end =
            set + 1 < first.size() ? static_cast<std::size_t>(first[set + 1]) : rows.size();
        unsigned found = 0;
        std::int64_t name = 0, rank = 0, bytes = 0, of_clock = 0, left = 0, came = 0;
        for (std::size_t at = begin; at < end; ++at) {
            const auto row = static_cast<std::size_t>(rows[at]);
            const std::int64_t here = calls.name[row], its = calls.rank[row], size = calls.bytes[row];
            const std::int64_t its_clock = clock[static_cast<std::size_t>(its)];
            const std::int64_t start = calls.start[row], ended = calls.end[row];
            if (calls.until[row] > last_until) found |= without_end;
            if (at > begin) {
                found |= here == name ? same_names : other_names;
                if (size != bytes && !any_bytes[static_cast<std::size_t>(here)]) found |= mixed_bytes;
                if (its == rank) found |= rank_twice;
            }
            if (at > begin && its_clock == of_clock) {
                left = std::min(left, ended);
                came = std::max(came, start);
            } else {
                left = ended;
                came = start;
            }
            if (left < came) found |= left_before;
            name = here, rank = its, bytes = size, of_clock = its_clock;
        }
        flags[set] = static_cast<std::uint8_t>(found);
    }
}

}  // namespace dftrace
