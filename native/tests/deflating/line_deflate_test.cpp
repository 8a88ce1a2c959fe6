// What is compressed line by line is unpacked by others' readers, whatever the lines are.
#include "dftrace/deflating/line_deflate.hpp"

#include <libdeflate.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "check.hpp"
#include "made_lines.hpp"

using dftrace::LineDeflate;

namespace {

// In memory of exactly that size, so that a sanitizer sees what is read beyond it.
std::string packed(LineDeflate& deflate, std::string_view text, std::size_t room) {
    const std::unique_ptr<char[]> exact(new char[text.size()]), out(new char[room]);
    text.copy(exact.get(), text.size());
    const std::size_t bytes = deflate.compress({exact.get(), text.size()}, out.get(), room);
    REQUIRE(bytes <= room);
    return {out.get(), bytes};
}

std::string unpacked(std::string_view deflated, std::size_t bytes) {
    static const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflate(
        libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
    std::string text(bytes, '?');
    std::size_t read = 0, written = 0;
    const auto result = libdeflate_deflate_decompress_ex(inflate.get(), deflated.data(), deflated.size(),
                                                         text.data(), text.size(), &read, &written);
    CHECK_EQ(static_cast<int>(result), static_cast<int>(LIBDEFLATE_SUCCESS));
    CHECK_EQ(read, deflated.size());
    CHECK_EQ(written, bytes);
    return text;
}

void check_round_trip(LineDeflate& deflate, std::string_view text) {
    const std::string bytes = packed(deflate, text, 2 * text.size() + 1024);
    REQUIRE(!bytes.empty());
    REQUIRE(unpacked(bytes, text.size()) == text);
}

}  // namespace

TEST("lines of a trace are unpacked as they were, and take a tenth") {
    LineDeflate deflate;
    for (const std::uint64_t seed : {5, 6, 7})  // of the first two it is little less
        for (const std::size_t bytes : {1u, 200u, 300u, 10'000u, 1'000'000u, 4'000'000u}) {
            const std::string text = made::Lines(seed).next(bytes);
            check_round_trip(deflate, text);
            if (bytes >= 1'000'000) CHECK(packed(deflate, text, text.size()).size() * 9 < text.size());
        }
}

TEST("codes stay within their length, however seldom a byte is") {
    LineDeflate deflate;
    std::string text;  // as often as the numbers of Fibonacci: the deepest tree
    for (std::uint32_t letter = 0, a = 1, b = 1; letter < 26; ++letter, b += std::exchange(a, b))
        text.append(a, static_cast<char>('a' + letter));
    check_round_trip(deflate, text);
}
