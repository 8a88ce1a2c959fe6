// Blocks of compressed files: read whole and in order by any number of threads, and no further than they are
// whole.
#include "dftrace/reading/traces/members.hpp"

#include <fcntl.h>
#include <libdeflate.h>
#include <unistd.h>
#include <zstd.h>

#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.hpp"
#include "dftrace/index/block_facts.hpp"
#include "scratch.hpp"

using namespace dftrace;

namespace {

std::string packed(const std::string& text, BlockCodec codec) {
    std::string out(text.size() + 1024, '\0');
    if (codec == BlockCodec::zstd) {
        ZSTD_CCtx* const c = ZSTD_createCCtx();
        ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
        out.resize(ZSTD_compress2(c, out.data(), out.size(), text.data(), text.size()));
        ZSTD_freeCCtx(c);
    } else {
        libdeflate_compressor* const c = libdeflate_alloc_compressor(1);
        out.resize(libdeflate_gzip_compress(c, text.data(), text.size(), out.data(), out.size()));
        libdeflate_free_compressor(c);
    }
    return out;
}

// A block that says of itself to have `told` bytes, or as many as it has.
std::string with_facts(const std::string& text, BlockCodec codec, std::uint32_t told = 0) {
    const bool gzip = codec == BlockCodec::gzip;
    constexpr std::size_t plain_head = 10;
    const std::string body = packed(text, codec).substr(gzip ? plain_head : 0);
    std::string head(gzip ? gzip_head_bytes : zstd_head_bytes, '\0');
    BlockFacts facts;
    facts.packed_bytes = told ? told : static_cast<std::uint32_t>(head.size() + body.size());
    facts.plain_bytes = static_cast<std::uint32_t>(text.size());
    gzip ? put_gzip_head(head.data(), facts) : put_zstd_head(head.data(), facts);
    return head + body;
}

struct Seen {
    std::string text;
    BlocksRead read;
};

Seen read(const ScratchDir& dir, const std::string& bytes, BlockCodec codec, std::size_t readers,
          bool fail = false) {
    const std::string path = dir.path() + "/file";
    std::ofstream(path, std::ios::binary) << bytes;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(file >= 0);
    std::vector<std::string> held(block_slots(readers));
    Seen seen;
    std::string added;
    std::mutex lock;
    const BlockWork work{
        [&](std::size_t, std::size_t slot, const PlainText& text) { held[slot] = text.view(); },
        [&](std::size_t slot) {
            if (fail && !seen.text.empty()) throw std::runtime_error("refused");
            seen.text += held[slot];
        },
        [&](std::size_t, std::size_t slot) {
            const std::lock_guard guard(lock);
            added += held[slot];
        },
        [] { return true; }};
    try {
        seen.read = read_blocks(file, codec, 0, bytes.size(), readers, work);
    } catch (...) {
        close(file);
        throw;
    }
    close(file);
    CHECK_EQ(added.size(), seen.text.size());
    CHECK_EQ(seen.read.plain_bytes, seen.text.size());
    return seen;
}

// Text that packs badly, so that beginnings of blocks stand in it by chance, and some by design.
std::string noisy(std::mt19937& noise, std::size_t bytes) {
    std::string text;
    while (text.size() < bytes) {
        text.push_back(static_cast<char>(noise()));
        if (noise() % 500 == 0) text += std::string("\x1f\x8b\x08\x00", 4);
    }
    text.back() = '\n';
    return text;
}

}  // namespace

TEST("all blocks are read in their order, wherever they seem to begin") {
    const ScratchDir dir;
    std::mt19937 noise(1);
    for (const BlockCodec codec : {BlockCodec::gzip, BlockCodec::zstd}) {
        std::string whole, bytes;
        for (int block = 0; block < 40; ++block) {
            // One in four is longer than a step of reading.
            const std::string text = noisy(noise, block % 4 ? 1 + noise() % 3000 : 300'000);
            whole += text;
            bytes += packed(text, codec);
        }
        for (const std::size_t readers : {1u, 2u, 5u}) {
            const Seen seen = read(dir, bytes, codec, readers);
            CHECK(seen.text == whole);
            CHECK_EQ(seen.read.file_bytes, bytes.size());
        }
    }
}

TEST("what a block says of its length is a guess, and all is read whatever it says") {
    const ScratchDir dir;
    std::mt19937 noise(4);
    for (const BlockCodec codec : {BlockCodec::gzip, BlockCodec::zstd}) {
        for (const std::uint32_t lie : {0u, 41u, 300u, 5'000u, 70'000u, 0x7fffffffu, 0xffffffffu}) {
            std::string whole, bytes;
            for (int block = 0; block < 12; ++block) {
                const std::string text = noisy(noise, 1 + noise() % 4000);
                whole += text;
                bytes += with_facts(text, codec, block % 3 == 1 ? lie : 0);
            }
            const Seen seen = read(dir, bytes, codec, 1 + lie % 3);
            CHECK(seen.text == whole);
            CHECK_EQ(seen.read.file_bytes, bytes.size());
        }
    }
}

TEST("reading ends before the first block that is torn, broken, or cut within a line") {
    const ScratchDir dir;
    std::mt19937 noise(2);
    for (const BlockCodec codec : {BlockCodec::gzip, BlockCodec::zstd}) {
        const std::string first = noisy(noise, 5000), second = noisy(noise, 5000);
        const std::string good = packed(first, codec), next = packed(second, codec);
        std::string broken = next;
        for (std::size_t i = 20; i < 40; ++i) broken[i] = static_cast<char>(~broken[i]);
        const std::string torn = next.substr(0, next.size() / 2);
        const std::string cut = packed(second + "half", codec) + next;
        for (const std::string& rest : {torn, broken + next, cut, std::string(100, '\0'), std::string("x")}) {
            const Seen seen = read(dir, good + rest, codec, 3);
            CHECK(seen.text == first);
            CHECK_EQ(seen.read.file_bytes, good.size());
        }
    }
}

TEST("while a block is worked at others are read, and wait for their turn") {
    const ScratchDir dir;
    std::string bytes;
    constexpr std::size_t blocks = 12, readers = 2, ahead = block_slots(readers) - 1;
    for (std::size_t block = 0; block < blocks; ++block)
        bytes += packed(std::to_string(block) + "\n", BlockCodec::gzip);
    const std::string path = dir.path() + "/file";
    std::ofstream(path, std::ios::binary) << bytes;
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    REQUIRE(file >= 0);
    std::mutex lock;
    std::condition_variable one_more;
    std::size_t scanned = 0, before_the_first = 0;
    std::string order;
    std::vector<std::string> held(block_slots(readers));
    const BlockWork work{
        [&](std::size_t, std::size_t slot, const PlainText& text) {
            held[slot] = text.view();
            std::unique_lock guard(lock);
            if (text.view() == "0\n") {
                // As long as it takes the other thread to use up all slots.
                one_more.wait_for(guard, std::chrono::seconds(20), [&] { return scanned == ahead; });
                before_the_first = scanned;
            }
            ++scanned;
            one_more.notify_all();
        },
        [&](std::size_t slot) { order += held[slot]; }, [](std::size_t, std::size_t) {}, [] { return true; }};
    const BlocksRead read = read_blocks(file, BlockCodec::gzip, 0, bytes.size(), readers, work);
    close(file);
    CHECK_EQ(before_the_first, ahead);
    CHECK_EQ(read.file_bytes, bytes.size());
    CHECK(order == "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n");
}

TEST("what the work throws ends the reading, and is thrown") {
    const ScratchDir dir;
    std::string bytes;
    for (int block = 0; block < 20; ++block) bytes += packed("line\n", BlockCodec::gzip);
    for (const std::size_t readers : {1u, 4u}) {
        bool thrown = false;
        try {
            read(dir, bytes, BlockCodec::gzip, readers, true);
        } catch (const std::runtime_error&) {
            thrown = true;
        }
        CHECK(thrown);
    }
}
