// Head, deflated text, and what a member ends with.
#include "dftrace/deflating/gzip_members.hpp"

#include <libdeflate.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace dftrace {

std::string_view GzipMembers::member(std::string_view block, const BlockFacts& facts) {
    constexpr std::size_t tail_bytes = 8;
    packed_.clear();
    char* const head = packed_.reserve(gzip_head_bytes + deflate_.most_bytes(block.size()) + tail_bytes);
    char* const body = head + gzip_head_bytes;
    char* const end = body + deflate_.compress(block, body);
    const auto bytes = static_cast<std::size_t>(end - head) + tail_bytes;
    put_gzip_head(head, facts.of_size(block.size(), bytes));
    const std::uint32_t tail[] = {libdeflate_crc32(0, block.data(), block.size()),
                                  static_cast<std::uint32_t>(block.size())};
    static_assert(sizeof tail == tail_bytes && std::endian::native == std::endian::little);
    std::memcpy(end, tail, tail_bytes);
    return {head, bytes};
}

}  // namespace dftrace
