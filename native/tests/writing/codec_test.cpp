// Blocks that are compressed one by one and laid end to end read back as one text.
#include "dftrace/writing/codec.hpp"

#include <libdeflate.h>
#include <zstd.h>

#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "trace_reader.hpp"

using dftrace::Compression;
using dftrace::make_codec;

namespace {

std::vector<std::string> hostile_blocks() {
    std::mt19937_64 random(3);
    std::vector<std::string> blocks{"", "\n", "[\n", std::string(3 << 20, 'a'), std::string(70'000, '\0'),
                                    ""};
    for (const std::size_t bytes : {1u, 2u, 1000u, 65'535u, 65'536u, 65'537u, 1u << 20}) {
        std::string noise(bytes, '\0');
        for (char& c : noise) c = static_cast<char>(random());
        blocks.push_back(std::move(noise));
    }
    for (int i = 0; i < 200; ++i) blocks.push_back("{\"id\":" + std::to_string(i) + "}\n");
    return blocks;
}

std::string joined(const std::vector<std::string>& blocks) {
    std::string all;
    for (const auto& block : blocks) all += block;
    return all;
}

}  // namespace

TEST("many blocks decompress to the whole, each by itself") {
    const auto blocks = hostile_blocks();
    for (const auto compression : {Compression::none, Compression::gzip, Compression::zstd}) {
        const auto codec = make_codec(compression, 0);
        std::string packed;
        for (const auto& block : blocks) codec->append(packed, block);
        const auto back = plain_blocks(dftrace::suffix_of(compression), packed);
        CHECK(joined(back) == joined(blocks));
        if (compression != Compression::none) CHECK(back == blocks);
        for (const auto& block : blocks) {
            std::string one;
            codec->append(one, block);
            CHECK(codec->text(one, block.size()) == block);
            if (!block.empty()) CHECK_EQ(codec->text(one, block.size() - 1), "");
            if (compression != Compression::none)
                CHECK_EQ(codec->text({one.data(), one.size() - 1}, 8u << 20), "");
        }
    }
}

TEST("a block that cannot be compressed hardly grows") {
    std::mt19937_64 random(5);
    std::string noise(1 << 20, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    for (const auto compression : {Compression::gzip, Compression::zstd}) {
        std::string packed;
        make_codec(compression, 0)->append(packed, noise);
        CHECK(packed.size() < noise.size() + noise.size() / 100);
    }
}

TEST("every level works, and others are refused") {
    const std::string text =
        joined(std::vector<std::string>(300, "{\"name\":\"forward\",\"cat\":\"compute\"}\n"));
    const auto check_level = [&text](Compression compression, int level) {
        std::string packed;
        make_codec(compression, level)->append(packed, text);
        CHECK_EQ(plain_blocks(dftrace::suffix_of(compression), packed).front(), text);
        CHECK(packed.size() < text.size() / 5);
    };
    for (int level = 1; level <= 12; ++level) check_level(Compression::gzip, level);
    for (const int level : {-5, 1, 3, 9, 19}) check_level(Compression::zstd, level);
    CHECK_THROWS(std::invalid_argument, make_codec(Compression::gzip, 13));
    CHECK_THROWS(std::invalid_argument, make_codec(Compression::gzip, -2));
    CHECK_THROWS(std::invalid_argument, make_codec(Compression::zstd, 1000));
}

TEST("libraries are named with their versions") {
    CHECK_EQ(dftrace::gzip_library(), "libdeflate " LIBDEFLATE_VERSION_STRING);
    CHECK_EQ(dftrace::zstd_library(), std::string("libzstd ") + ZSTD_versionString());
}
