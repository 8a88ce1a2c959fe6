// What blocks say of themselves is read back, by no reader taken for text, and never out of bounds.
#include "dftrace/index/block_facts.hpp"

#include <optional>
#include <random>
#include <string>

#include "check.hpp"
#include "dftrace/writing/codec.hpp"

using namespace dftrace;

namespace {

const std::string lines = "{\"id\":1}\n{\"id\":2}\n{\"id\":3}\n";

std::string block(Compression compression, const BlockReach& reach, BlockHolds holds) {
    std::string packed;
    make_codec(compression, 0)->append(packed, lines, {.lines = 3, .holds = holds, .reach = reach});
    return packed;
}

}  // namespace

TEST("a block says how long it is, how many lines it has, and from when to when") {
    for (const Compression compression : {Compression::gzip, Compression::zstd}) {
        BlockReach reach;
        CHECK(reach.first_ns > reach.last_ns);
        reach.add(-5, 7);
        reach.add(3, 1'700'000'000'000'000'001);
        const std::string packed = block(compression, reach, BlockHolds::index);
        const std::optional<BlockFacts> facts = block_facts(packed);
        REQUIRE(facts.has_value());
        CHECK_EQ(facts->packed_bytes, packed.size());
        CHECK_EQ(facts->plain_bytes, lines.size());
        CHECK_EQ(facts->lines, 3);
        CHECK(facts->holds == BlockHolds::index);
        CHECK_EQ(facts->reach.first_ns, -5);
        CHECK_EQ(facts->reach.last_ns, 1'700'000'000'000'000'001);
        // The first bytes suffice, and what follows does not matter.
        CHECK(block_facts(packed.substr(0, gzip_head_bytes)) == facts);
        CHECK(block_facts(packed + packed) == facts);
        CHECK(begins_block(packed));
        CHECK_EQ(skippable_bytes(packed), compression == Compression::zstd ? zstd_head_bytes : 0);
    }
}

TEST("a subfield of others may stand in front") {
    std::string member = block(Compression::gzip, {}, BlockHolds::lines);
    const std::optional<BlockFacts> facts = block_facts(member);
    member.insert(12, std::string("XY\x03\x00\x01\x02\x03", 7));
    member[10] = static_cast<char>(member[10] + 7);
    CHECK(block_facts(member) == facts);
    member[14] = '\x7f';  // longer than the field
    CHECK(!block_facts(member));
}

TEST("of broken heads, and of any bytes, nothing is read that is not there") {
    std::mt19937 noise(11);
    for (const Compression compression : {Compression::gzip, Compression::zstd}) {
        const std::string packed = block(compression, {}, BlockHolds::lines);
        for (std::size_t bytes = 0; bytes < 60; ++bytes) {
            // Of its own memory, so that a sanitizer sees a byte read behind it.
            const std::string cut(packed.substr(0, bytes));
            const std::size_t head = compression == Compression::gzip ? gzip_head_bytes : zstd_head_bytes;
            CHECK_EQ(block_facts(std::string(cut)).has_value(), bytes >= head);
        }
        for (int round = 0; round < 20'000; ++round) {
            std::string broken = packed.substr(0, 1 + noise() % 60);
            for (unsigned change = noise() % 4; change <= 4; ++change)
                broken[noise() % broken.size()] = static_cast<char>(noise());
            const std::optional<BlockFacts> facts = block_facts(broken);
            CHECK(!facts || facts->packed_bytes > zstd_head_bytes);
            static_cast<void>(skippable_bytes(broken));
            static_cast<void>(begins_block(broken));
        }
    }
    CHECK(!block_facts(""));
    CHECK(!block_facts(lines));
}
