// Reading the heads of blocks alone.
#include "dftrace/reading/traces/hopping.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <string_view>
#include <system_error>

#include "dftrace/system/read_at.hpp"

namespace dftrace {

namespace {

using Head = std::array<char, 64>;
static_assert(gzip_head_bytes <= sizeof(Head) && zstd_head_bytes <= sizeof(Head));

std::string_view head_at(int file, std::uint64_t place, std::uint64_t end, Head& head) {
    const auto wanted = static_cast<std::size_t>(std::min<std::uint64_t>(head.size(), end - place));
    std::size_t held = 0;
    while (held < wanted) {
        const std::ptrdiff_t got = read_at(file, head.data() + held, wanted - held, place + held);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw std::system_error(errno, std::generic_category());
        if (got == 0) break;  // it is shorter than it was
        held += static_cast<std::size_t>(got);
    }
    return {head.data(), held};
}

}  // namespace

Hops hop_blocks(int file, std::uint64_t end) {
    Hops hops;
    Head head;
    std::string_view bytes = head_at(file, 0, end, head);
    while (const std::optional<BlockFacts> facts = block_facts(bytes)) {
        const std::uint64_t next = hops.file_bytes + facts->packed_bytes;
        if (next > end) break;
        bytes = head_at(file, next, end, head);
        if (next < end && !begins_block(bytes)) break;
        if (facts->holds == BlockHolds::index)
            hops.index = {hops.file_bytes, facts->packed_bytes, hops.plain_bytes, hops.lines};
        hops.file_bytes = next;
        hops.plain_bytes += facts->plain_bytes;
        hops.lines += facts->lines;
        constexpr std::int64_t no_end = std::numeric_limits<std::int64_t>::max();
        if (facts->reach.first_ns < no_end && facts->reach.last_ns == no_end) {
            if (hops.untold.size() <= most_untold)
                hops.untold.push_back({hops.file_bytes - facts->packed_bytes, facts->packed_bytes});
        } else if (facts->reach.first_ns <= facts->reach.last_ns) {
            hops.reach.add(facts->reach.first_ns, facts->reach.last_ns);
        }
        ++hops.blocks;
    }
    return hops;
}

}  // namespace dftrace
