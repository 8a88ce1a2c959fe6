// Blocks of made-up text, compressed: for programs that read them by other readers, and to see which are
// large.
//   dftrace_made_blocks members SEED COUNT    gzip members, each behind two lengths and its text
//   dftrace_made_blocks sizes SEED COUNT KIB  files of so many kinds in blocks of that size, beside
//   libdeflate's
#include <libdeflate.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "dftrace/deflating/block_deflate.hpp"
#include "dftrace/deflating/line_deflate.hpp"
#include "made_lines.hpp"

using made::Lines;
using made::Random;

namespace {

std::size_t of_any_size(Random& random, double least, double most) {
    const double share = static_cast<double>(random() >> 11) * 0x1p-53;
    return static_cast<std::size_t>(least * std::pow(most / least, share));
}

// Pieces of it cut out, doubled, moved and changed.
void mutate(std::string& text, Random& random) {
    for (std::uint64_t changes = 1 + random() % 20; changes != 0 && !text.empty(); --changes) {
        const std::size_t at = random() % text.size();
        const std::size_t bytes = std::min<std::size_t>(of_any_size(random, 1, 400), text.size() - at);
        switch (random() % 4) {
            case 0: text.erase(at, bytes); break;
            case 1: text.insert(random() % text.size(), text.substr(at, bytes)); break;
            case 2: text[at] = static_cast<char>(random()); break;
            default: text[at] = "\n,:}\""[random() % 5];
        }
    }
}

// Small ones mainly, of all that there is.
class Blocks {
  public:
    explicit Blocks(std::uint64_t seed) : random_(seed), lines_(seed) {}

    std::string next() {
        if (random_() % 40 == 0) lines_ = Lines(random_());
        const std::uint64_t size = random_() % 100, kind = random_() % 10;
        const std::size_t bytes = size == 0  ? of_any_size(random_, 64 << 10, 400 << 10)
                                  : size < 8 ? of_any_size(random_, 2 << 10, 64 << 10)
                                             : random_() % 2048;
        if (kind >= 2) {
            std::string text = lines_.next(bytes);
            if (kind >= 6) mutate(text, random_);
            return text;
        }
        static constexpr std::string_view some = ",\n}:\"0123456789abcdefghijklm";
        const std::size_t used = kind == 0 ? 256 : 1 + random_() % some.size();
        std::string text(bytes, ' ');
        for (char& letter : text)
            letter = used == 256 ? static_cast<char>(random_()) : some[random_() % used];
        return text;
    }

  private:
    Random random_;
    Lines lines_;
};

std::uint32_t length_of(std::size_t bytes) { return static_cast<std::uint32_t>(bytes); }

// One in two is compressed as lines, whatever it is; of the others the writer's choice is taken.
int write_members(std::uint64_t seed, std::uint64_t count) {
    constexpr char head[] = "\x1f\x8b\x08\0\0\0\0\0\0\xff";
    constexpr std::size_t head_bytes = sizeof head - 1, tail_bytes = 8;
    Blocks blocks(seed);
    dftrace::BlockDeflate chosen(0);
    dftrace::LineDeflate lines;
    const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflate(
        libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    std::string member, back;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::string text = blocks.next();
        const std::size_t room = 2 * text.size() + 1024;
        member.assign(head, head_bytes);
        member.resize(head_bytes + room);
        member.resize(head_bytes + (i % 2 ? lines.compress(text, member.data() + head_bytes, room)
                                          : chosen.compress(text, member.data() + head_bytes)));
        const std::uint32_t tail[] = {libdeflate_crc32(0, text.data(), text.size()), length_of(text.size())};
        member.append(reinterpret_cast<const char*>(tail), tail_bytes);
        back.assign(text.size(), '?');
        if (libdeflate_gzip_decompress(inflate.get(), member.data(), member.size(), back.data(), back.size(),
                                       nullptr) != LIBDEFLATE_SUCCESS ||
            back != text) {
            std::fprintf(stderr, "libdeflate reads another text in block %llu of seed %llu\n",
                         static_cast<unsigned long long>(i), static_cast<unsigned long long>(seed));
            return EXIT_FAILURE;
        }
        const std::uint32_t lengths[] = {length_of(text.size()), length_of(member.size())};
        if (std::fwrite(lengths, sizeof lengths, 1, stdout) != 1 ||
            std::fwrite(text.data(), 1, text.size(), stdout) != text.size() ||
            std::fwrite(member.data(), 1, member.size(), stdout) != member.size()) {
            std::perror("dftrace_made_blocks");
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}

// A line for each file: its size over that by libdeflate's level 5, the largest such ratio of a block, and
// the kinds of its lines.
int tell_sizes(std::uint64_t seed, std::uint64_t count, std::size_t block_bytes) {
    const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> library(
        libdeflate_alloc_compressor(5), libdeflate_free_compressor);
    dftrace::BlockDeflate deflate(0);
    for (std::uint64_t i = 0; i < count; ++i) {
        Lines lines(seed + i);
        std::size_t file = 0, file_by_library = 0;
        double largest = 0;
        int other = 0;
        constexpr int blocks = 5;
        for (int block = 0; block < blocks; ++block) {
            const std::string text = lines.next(block_bytes);
            std::string out(deflate.most_bytes(text.size()), '\0');
            const std::size_t bytes = deflate.compress(text, out.data());
            const std::size_t by_library =
                libdeflate_deflate_compress(library.get(), text.data(), text.size(), out.data(), out.size());
            file += bytes;
            file_by_library += by_library;
            other += bytes != by_library;
            largest = std::max(largest, static_cast<double>(bytes) / static_cast<double>(by_library));
        }
        std::printf("%llu %.4f %.4f %d/%d %s\n", static_cast<unsigned long long>(seed + i),
                    static_cast<double>(file) / static_cast<double>(file_by_library), largest, other, blocks,
                    lines.told().c_str());
    }
    return EXIT_SUCCESS;
}

}  // namespace

int main(int count, char** arguments) {
    const std::string_view task = count > 3 ? arguments[1] : "";
    const auto number = [&](int at) { return std::strtoull(arguments[at], nullptr, 10); };
    if (task == "members") return write_members(number(2), number(3));
    if (task == "sizes" && count > 4) return tell_sizes(number(2), number(3), number(4) << 10);
    std::fprintf(stderr, "dftrace_made_blocks members SEED COUNT | sizes SEED COUNT KIB\n");
    return 2;
}
