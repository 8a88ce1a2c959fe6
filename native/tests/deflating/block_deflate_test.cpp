// Each block is compressed by what suits it, and is hardly ever larger than libdeflate would have made it;
// blocks that are laid end to end read back as one text.
#include "dftrace/deflating/block_deflate.hpp"

#include <libdeflate.h>
#include <zstd.h>

#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "check.hpp"
#include "dftrace/writing/codec.hpp"
#include "made_lines.hpp"
#include "trace_reader.hpp"

using dftrace::BlockDeflate;
using dftrace::Compression;
using dftrace::make_codec;

namespace {

using Random = std::mt19937_64;

std::string compressed(BlockDeflate& deflate, std::string_view block) {
    std::string out(deflate.most_bytes(block.size()), '\0');
    out.resize(deflate.compress(block, out.data()));
    return out;
}

std::string by_library(std::string_view block, int level) {
    const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
        libdeflate_alloc_compressor(level), libdeflate_free_compressor);
    std::string out(libdeflate_deflate_compress_bound(compressor.get(), block.size()), '\0');
    out.resize(
        libdeflate_deflate_compress(compressor.get(), block.data(), block.size(), out.data(), out.size()));
    return out;
}

bool unpacks_to(std::string_view packed, std::string_view text) {
    const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflate(
        libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    std::string back(text.size(), '\0');
    return libdeflate_deflate_decompress(inflate.get(), packed.data(), packed.size(), back.data(),
                                         back.size(), nullptr) == LIBDEFLATE_SUCCESS &&
           back == text;
}

// A thread's spans: `names` in turn, each with arguments made by `args`.
template <class Args>
std::string spans(std::size_t bytes, std::size_t names, Args args) {
    Random random(7);
    std::string text;
    std::uint64_t ns = 7'000'000'000'000;
    for (std::size_t id = 1; text.size() < bytes; ++id) {
        ns += 300 + random() % 700'000;
        const std::uint64_t dur = 5'000 + random() % 1'000'000, level = id % names == 0 ? 1 : 2;
        text += "{\"id\":" + std::to_string(id) + ",\"name\":\"phase" + std::to_string(id % names) +
                "\",\"cat\":\"compute\",\"pid\":4711,\"tid\":4711,\"ts\":" + std::to_string(ns / 1000) + "." +
                std::to_string(100 + ns % 900) + ",\"dur\":" + std::to_string(dur / 1000) + "." +
                std::to_string(100 + dur % 900) +
                ",\"ph\":\"X\",\"args\":{\"hhash\":\"08cf3707b570dbec\",\"p_idx\":" +
                std::to_string(level == 1 ? 0 : id - id % names) + ",\"level\":" + std::to_string(level);
        text += args(id, random);
        text += "}}\n";
    }
    return text;
}

std::string loop(std::size_t bytes) {
    return spans(bytes, 6, [](std::size_t id, Random&) {
        return ",\"epoch\":" + std::to_string(id / 6000) + ",\"step\":" + std::to_string(id / 6);
    });
}

// Short spans of one name, each within another: a line is like the one before the last.
std::string nested(std::size_t bytes) {
    Random random(8);
    std::string text;
    const auto put = [&](std::size_t id, std::size_t parent, std::uint64_t ns, std::uint64_t dur) {
        text += "{\"id\":" + std::to_string(id) +
                ",\"name\":\"forward\",\"cat\":\"compute\",\"pid\":4711,\"tid\":4711,\"ts\":" +
                std::to_string(ns / 1000) + "." + std::to_string(100 + ns % 900) + ",\"dur\":0.0" +
                std::to_string(dur) +
                ",\"ph\":\"X\",\"args\":{\"hhash\":\"08cf3707b570dbec\",\"p_idx\":" + std::to_string(parent) +
                ",\"level\":" + (parent ? "2" : "1") + ",\"epoch\":1,\"step\":" + std::to_string(id / 100) +
                "}}\n";
    };
    std::uint64_t ns = 7'000'000'000'000;
    for (std::size_t id = 1; text.size() < bytes; id += 2, ns += 170 + random() % 10) {
        put(id + 1, id, ns + 40, 20 + random() % 2 * 10);
        put(id, 0, ns, 80 + random() % 2 * 10);
    }
    return text;
}

std::string words(std::size_t bytes) {
    return spans(bytes, 3, [](std::size_t, Random& random) {
        static const std::string syllables[] = {"ba", "ko", "tri", "mun", "se", "lo", "qua", "fi"};
        std::string text = ",\"text\":\"";
        for (std::uint64_t i = 5 + random() % 20; i != 0; --i)
            text += syllables[random() % 8] + syllables[random() % 8] + " ";
        return text + "\"";
    });
}

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

TEST("lines of a training and of workers take less than libdeflate makes of them") {
    BlockDeflate deflate(0);
    const auto check_less = [&](const std::string& text, double most) {
        const std::string packed = compressed(deflate, text);
        CHECK(unpacks_to(packed, text));
        const double ratio =
            static_cast<double>(packed.size()) / static_cast<double>(by_library(text, 5).size());
        CHECK(ratio <= most);
        CHECK(ratio != 1);
    };
    check_less(loop(1u << 20), 0.95);
    check_less(loop(100'000), 1.0);
    check_less(spans(1u << 20, 2,
                     [](std::size_t id, Random& random) {
                         return ",\"index\":" + std::to_string(random() % 50'000) +
                                ",\"worker\":" + std::to_string(id % 4);
                     }),
               1.03);
    check_less(spans(1u << 20, 400, [](std::size_t, Random&) { return ""; }), 1.0);
    check_less(nested(1u << 20), 0.9);
    // The layers of a network: their names come back after a while.
    check_less(
        spans(1u << 20, 40, [](std::size_t id, Random&) { return ",\"step\":" + std::to_string(id / 40); }),
        1.0);
}

TEST("no block is more than three hundredths larger than libdeflate makes it") {
    BlockDeflate deflate(0);
    Random random(9);
    std::string noise(300'000, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    const std::string easy = loop(1u << 18), hard = words(1u << 17);
    std::string blocks[] = {words(1u << 20), noise, std::string(1u << 20, 'a'), std::string(1u << 17, '\n'),
                            "", "\n", loop(40'000),
                            // What is not in the sample is of another kind.
                            easy + hard + easy + hard + easy + hard + easy, hard + easy + hard};
    for (const std::string& text : blocks) {
        const std::string packed = compressed(deflate, text);
        CHECK(unpacks_to(packed, text));
        CHECK(packed.size() * 100 <= by_library(text, 5).size() * 103);
    }
}

TEST("lines of any kind take no more than three hundredths above libdeflate's, in each block of a file") {
    BlockDeflate deflate(0);
    for (std::uint64_t seed = 10; seed < 50; ++seed) {
        made::Lines lines(seed);
        for (const std::size_t bytes : {std::size_t{1} << 20, std::size_t{3} << 18}) {
            const std::string text = lines.next(bytes), packed = compressed(deflate, text);
            CHECK(unpacks_to(packed, text));
            if (packed.size() * 100 > by_library(text, 5).size() * 103)
                CHECK_EQ(std::to_string(seed) + ": " + lines.told(), "a kind that takes too much");
        }
    }
}

// Those of the first seed change their kind within a block, and one kind of them repeats what is far away.
TEST("lines of a small block take no more than three hundredths above libdeflate's, too") {
    BlockDeflate deflate(0);
    for (const std::uint64_t seed : {262, 586, 532, 439, 301, 28}) {
        made::Lines lines(seed);
        for (int block = 0; block < 5; ++block) {
            const std::string text = lines.next(200u << 10), packed = compressed(deflate, text);
            CHECK(unpacks_to(packed, text));
            CHECK(packed.size() * 100 <= by_library(text, 5).size() * 103);
        }
    }
}

TEST("a level that is asked for is that of libdeflate") {
    const std::string text = loop(1u << 17);
    for (const int level : {1, 5, 6, 12}) {
        BlockDeflate deflate(level);
        CHECK(compressed(deflate, text) == by_library(text, level));
    }
    CHECK_THROWS(std::invalid_argument, BlockDeflate(13));
}

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
    CHECK_THROWS(std::invalid_argument, make_codec(Compression::gzip, -2));
    CHECK_THROWS(std::invalid_argument, make_codec(Compression::zstd, 1000));
}

TEST("libraries are named with their versions") {
    CHECK_EQ(dftrace::gzip_library(), "libdeflate " LIBDEFLATE_VERSION_STRING);
    CHECK_EQ(dftrace::zstd_library(), std::string("libzstd ") + ZSTD_versionString());
}
