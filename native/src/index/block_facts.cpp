// Bytes of block facts: little-endian numbers one after the other.
#include "dftrace/index/block_facts.hpp"

#include <cstring>
#include <type_traits>

namespace dftrace {

namespace {

constexpr std::uint8_t facts_version = 1;
constexpr std::size_t facts_bytes = 30;
constexpr std::string_view facts_id = "DF";

constexpr std::string_view gzip_magic = "\x1f\x8b\x08";
constexpr std::string_view zstd_magic = "\x28\xb5\x2f\xfd";
constexpr std::uint32_t first_skippable = 0x184D2A50, last_skippable = 0x184D2A5F, own_skippable = 0x184D2A5D;
constexpr std::uint8_t has_extra = 4;  // of the flags of a gzip member

template <typename Number>
char* put(char* at, Number number) noexcept {
    auto rest = static_cast<std::make_unsigned_t<Number>>(number);
    for (std::size_t i = 0; i < sizeof rest; ++i) *at++ = static_cast<char>(rest >> (8 * i) & 0xff);
    return at;
}

template <typename Number>
Number get(const char*& at) noexcept {
    std::make_unsigned_t<Number> number = 0;
    for (std::size_t i = 0; i < sizeof number; ++i)
        number |= static_cast<decltype(number)>(
            static_cast<decltype(number)>(static_cast<unsigned char>(*at++)) << (8 * i));
    return static_cast<Number>(number);
}

std::uint32_t word_at(std::string_view bytes, std::size_t place) noexcept {
    const char* at = bytes.data() + place;
    return get<std::uint32_t>(at);
}

char* put_facts(char* at, const BlockFacts& facts) noexcept {
    at = put(at, facts_version);
    at = put(at, static_cast<std::uint8_t>(facts.holds));
    at = put(at, facts.packed_bytes);
    at = put(at, facts.plain_bytes);
    at = put(at, facts.lines);
    at = put(at, facts.reach.first_ns);
    return put(at, facts.reach.told_last_ns());
}

std::optional<BlockFacts> facts_in(std::string_view bytes) noexcept {
    if (bytes.size() < facts_bytes) return {};
    const char* at = bytes.data();
    if (get<std::uint8_t>(at) != facts_version) return {};
    BlockFacts facts;
    const auto holds = get<std::uint8_t>(at);
    if (holds > static_cast<std::uint8_t>(BlockHolds::index)) return {};
    facts.holds = static_cast<BlockHolds>(holds);
    facts.packed_bytes = get<std::uint32_t>(at);
    facts.plain_bytes = get<std::uint32_t>(at);
    facts.lines = get<std::uint32_t>(at);
    facts.reach.first_ns = get<std::int64_t>(at);
    facts.reach.last_ns = get<std::int64_t>(at);
    // No block is as short as its head.
    if (facts.packed_bytes <= zstd_head_bytes || facts.lines > facts.plain_bytes) return {};
    return facts;
}

bool is_skippable(std::string_view bytes) noexcept {
    return bytes.size() >= 8 && word_at(bytes, 0) >= first_skippable && word_at(bytes, 0) <= last_skippable;
}

}  // namespace

BlockFacts BlockFacts::of_size(std::size_t plain, std::size_t packed) const noexcept {
    if (plain > UINT32_MAX || packed > UINT32_MAX) return {};
    BlockFacts told = *this;
    told.plain_bytes = static_cast<std::uint32_t>(plain);
    told.packed_bytes = static_cast<std::uint32_t>(packed);
    return told;
}

void put_gzip_head(char* at, const BlockFacts& facts) noexcept {
    at += gzip_magic.copy(at, gzip_magic.size());
    at = put(at, has_extra);
    at = put(at, std::uint32_t{0});   // no time of change
    at = put(at, std::uint8_t{0});    // nor a word on the level
    at = put(at, std::uint8_t{255});  // nor on the file system
    at = put(at, static_cast<std::uint16_t>(facts_id.size() + 2 + facts_bytes));
    at += facts_id.copy(at, facts_id.size());
    at = put(at, static_cast<std::uint16_t>(facts_bytes));
    put_facts(at, facts);
}

void put_zstd_head(char* at, const BlockFacts& facts) noexcept {
    at = put(at, own_skippable);
    at = put(at, static_cast<std::uint32_t>(facts_id.size() + facts_bytes));
    at += facts_id.copy(at, facts_id.size());
    put_facts(at, facts);
}

std::optional<BlockFacts> block_facts(std::string_view bytes) noexcept {
    if (is_skippable(bytes)) {
        const std::string_view content = bytes.substr(8);
        if (word_at(bytes, 4) != facts_id.size() + facts_bytes || !content.starts_with(facts_id)) return {};
        return facts_in(content.substr(facts_id.size()));
    }
    constexpr std::size_t fixed_bytes = 12;
    if (bytes.size() < fixed_bytes || !bytes.starts_with(gzip_magic) || !(bytes[3] & has_extra)) return {};
    const char* at = bytes.data() + 10;
    std::string_view extra = bytes.substr(fixed_bytes);
    extra = extra.substr(0, get<std::uint16_t>(at));
    // Others may have put a subfield of theirs in front.
    while (extra.size() >= 4) {
        at = extra.data() + 2;
        const std::size_t length = get<std::uint16_t>(at);
        const std::string_view content = extra.substr(4, length);
        if (extra.starts_with(facts_id) && length == facts_bytes) return facts_in(content);
        extra.remove_prefix(4 + content.size());
    }
    return {};
}

std::size_t skippable_bytes(std::string_view bytes) noexcept {
    std::size_t skipped = 0;
    while (skipped < bytes.size() && is_skippable(bytes.substr(skipped)))
        skipped += std::size_t{8} + word_at(bytes, skipped + 4);
    return skipped;
}

bool begins_block(std::string_view bytes) noexcept {
    return bytes.starts_with(gzip_magic) || bytes.starts_with(zstd_magic) || is_skippable(bytes);
}

}  // namespace dftrace
