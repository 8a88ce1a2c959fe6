// From block to block by what they say, and no further than that is proven.
#include "dftrace/reading/traces/hopping.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "dftrace/writing/codec.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

constexpr Compression packing[] = {Compression::gzip, Compression::zstd};

struct Blocks {
    std::string bytes;
    std::string text;
    std::vector<std::size_t> places;
};

Blocks made(Compression compression, std::size_t count, std::size_t index_at) {
    std::mt19937 noise(static_cast<unsigned>(count));
    const auto codec = make_codec(compression, 0);
    Blocks blocks;
    for (std::size_t i = 0; i < count; ++i) {
        std::string text;
        for (std::size_t line = 0; line <= i % 7; ++line) text += std::to_string(noise()) + "\n";
        blocks.places.push_back(blocks.bytes.size());
        BlockReach reach;
        reach.add(static_cast<std::int64_t>(1000 * i), static_cast<std::int64_t>(1000 * i + 10));
        codec->append(blocks.bytes, text,
                      {.lines = static_cast<std::uint32_t>(i % 7 + 1),
                       .holds = i == index_at ? BlockHolds::index : BlockHolds::lines,
                       .reach = reach});
        blocks.text += text;
    }
    return blocks;
}

class File {
  public:
    explicit File(const ScratchDir& dir, const std::string& bytes) : bytes_(bytes.size()) {
        const std::string path = dir.path() + "/file";
        std::ofstream(path, std::ios::binary) << bytes;
        number_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        REQUIRE(number_ >= 0);
    }
    ~File() { close(number_); }
    Hops hops() const { return hop_blocks(number_, bytes_); }

  private:
    std::size_t bytes_;
    int number_ = -1;
};

std::size_t lines_of(const std::string& text) {
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST("what blocks say adds up, and the index is found") {
    const ScratchDir dir;
    for (const Compression compression : packing) {
        const Blocks blocks = made(compression, 50, 30);
        const Hops hops = File(dir, blocks.bytes).hops();
        CHECK_EQ(hops.blocks, 50);
        CHECK_EQ(hops.file_bytes, blocks.bytes.size());
        CHECK_EQ(hops.plain_bytes, blocks.text.size());
        CHECK_EQ(hops.lines, lines_of(blocks.text));
        CHECK_EQ(hops.reach.first_ns, 0);
        CHECK_EQ(hops.reach.last_ns, 49'010);
        REQUIRE(hops.index.has_value());
        CHECK_EQ(hops.index->place, blocks.places[30]);
        CHECK_EQ(hops.index->packed_bytes, blocks.places[31] - blocks.places[30]);
        const Hops before = File(dir, blocks.bytes.substr(0, blocks.places[30])).hops();
        CHECK_EQ(hops.index->plain_before, before.plain_bytes);
        CHECK_EQ(hops.index->lines_before, before.lines);
        CHECK(!before.index);
    }
}

TEST("a cut file is known as far as its blocks are whole") {
    const ScratchDir dir;
    for (const Compression compression : packing) {
        const Blocks blocks = made(compression, 6, 4);
        for (std::size_t bytes = 0; bytes <= blocks.bytes.size(); ++bytes) {
            std::size_t whole = 0;
            while (whole < 6 && (whole == 5 ? blocks.bytes.size() : blocks.places[whole + 1]) <= bytes)
                ++whole;
            const Hops hops = File(dir, blocks.bytes.substr(0, bytes)).hops();
            CHECK(hops.blocks <= whole);
            // Of the last one it takes the beginning of another to believe it.
            CHECK(hops.blocks + 1 >= whole);
            CHECK_EQ(hops.index.has_value(), hops.blocks > 4);
        }
    }
}

TEST("who lies about a length is believed no further than the next block") {
    const ScratchDir dir;
    for (const Compression compression : packing) {
        const Blocks blocks = made(compression, 8, 6);
        const std::size_t at = compression == Compression::gzip ? 18 : 12;  // of the length in a head
        for (const std::uint32_t lie : {0u, 7u, 41u, 100u, 0x7fffffffu, 0xffffffffu}) {
            std::string bytes = blocks.bytes;
            for (std::size_t i = 0; i < 4; ++i)
                bytes[blocks.places[3] + at + i] = static_cast<char>(lie >> (8 * i) & 0xff);
            const Hops hops = File(dir, bytes).hops();
            CHECK_EQ(hops.blocks, 3);
            CHECK_EQ(hops.file_bytes, blocks.places[3]);
            CHECK(!hops.index);
        }
    }
}

TEST("a file without any, and one that goes on without") {
    const ScratchDir dir;
    CHECK_EQ(File(dir, "").hops().blocks, 0);
    CHECK_EQ(File(dir, "[\n{}\n").hops().blocks, 0);
    const Blocks blocks = made(Compression::gzip, 3, 1);
    const std::string foreign("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff", 10);
    CHECK_EQ(File(dir, foreign + blocks.bytes).hops().blocks, 0);
    const Hops hops = File(dir, blocks.bytes + foreign).hops();
    CHECK_EQ(hops.blocks, 3);
    CHECK(hops.index.has_value());
}

TEST("blocks that do not tell from when to when are named, and count for nothing") {
    const ScratchDir dir;
    for (const Compression compression : packing) {
        const auto codec = make_codec(compression, 0);
        std::string bytes;
        std::vector<BlockPlace> places;
        for (std::int64_t i = 0; i < 100; ++i) {
            BlockReach reach;
            if (i % 2) reach.add_from(1000 - i);
            if (i % 2 == 0 && i % 4) reach.add(1000 * i, 1000 * i + 10);
            const std::size_t place = bytes.size();
            codec->append(bytes, "{}\n", {.lines = 1, .reach = reach});
            if (i % 2) places.push_back({place, bytes.size() - place});
        }
        const Hops hops = File(dir, bytes).hops();
        CHECK_EQ(hops.blocks, 100);
        CHECK_EQ(hops.reach.first_ns, 2000);
        CHECK_EQ(hops.reach.last_ns, 98'010);
        CHECK(hops.untold == places);
        std::string many;
        for (int i = 0; i < 3; ++i) many += bytes;
        CHECK(File(dir, many).hops().untold.size() > most_untold);
    }
}
