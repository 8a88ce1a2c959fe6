// What is compressed line by line is unpacked by others' readers, whatever the lines are.
#include "dftrace/deflating/line_deflate.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "check.hpp"

using dftrace::LineDeflate;

namespace {

using Random = std::mt19937_64;

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

std::string number(Random& random, unsigned most) { return std::to_string(random() % most); }

// Lines of spans, instants and counters as the recorder writes them.
std::string trace_lines(Random& random, std::size_t lines) {
    static const char* const names[] = {"forward", "backward", "item", "step", "fetch.iter"};
    std::string text;
    std::uint64_t ns = 7'000'000'000;
    for (std::size_t id = 1; id <= lines; ++id) {
        ns += random() % 100'000;
        const std::uint64_t kind = random() % 16;
        text += "{\"id\":" + std::to_string(id) + ",\"name\":\"" + names[random() % std::size(names)] +
                "\",\"cat\":\"compute\",\"pid\":4711,\"tid\":" + std::to_string(4711 + kind % 2) +
                ",\"ts\":" + std::to_string(ns / 1000) + "." + std::to_string(100 + ns % 900);
        if (kind == 0) {
            text += ",\"ph\":\"C\",\"args\":{\"rss\":" + number(random, 1'000'000) + "}}\n";
            continue;
        }
        text += ",\"dur\":" + number(random, 9000) +
                ".5,\"ph\":\"X\",\"args\":{\"hhash\":\"08cf3707b570dbec\"" +
                ",\"p_idx\":" + std::to_string(id - id % 7) + ",\"level\":" + number(random, 4);
        if (kind < 4) text += ",\"file\":\"/data/" + number(random, 100) + ",a\"";
        text += ",\"step\":" + std::to_string(id / 9) + "}}\n";
    }
    return text;
}

// Of few letters, so that there are matches of all lengths.
std::string random_text(Random& random, std::size_t bytes) {
    static constexpr std::string_view letters = ",,\n}}:\"0123456789ts du\xff";
    const std::size_t used = 1 + random() % letters.size();
    std::string text(bytes, ' ');
    for (char& letter : text) letter = letters[random() % used];
    // And pieces of itself, at all distances.
    for (std::size_t copies = random() % 20; bytes > 8 && copies != 0; --copies) {
        const std::size_t from = random() % bytes, to = random() % bytes;
        const std::size_t length = std::min(random() % 600, bytes - std::max(from, to));
        for (std::size_t i = 0; i < length; ++i) text[to + i] = text[from + i];
    }
    return text;
}

}  // namespace

TEST("lines of a trace are unpacked as they were, and take a tenth") {
    LineDeflate deflate;
    Random random(1);
    for (const std::size_t lines : {1u, 2u, 3u, 50u, 5000u, 20000u}) {
        const std::string text = trace_lines(random, lines);
        check_round_trip(deflate, text);
        if (lines >= 5000) CHECK(packed(deflate, text, text.size()).size() * 9 < text.size());
    }
}

TEST("any bytes are unpacked as they were") {
    LineDeflate deflate;
    Random random(2);
    for (std::size_t bytes = 0; bytes < 40; ++bytes)
        for (int i = 0; i < 30; ++i) check_round_trip(deflate, random_text(random, bytes));
    for (int i = 0; i < 300; ++i) check_round_trip(deflate, random_text(random, random() % 3000));
    for (const std::size_t bytes : {65'534u, 65'536u, 70'000u, 300'000u})
        check_round_trip(deflate, random_text(random, bytes));
    std::string noise(200'000, '\0');
    for (char& c : noise) c = static_cast<char>(random());
    check_round_trip(deflate, noise);
}

TEST("lines without fields, of many fields, and very long ones are unpacked as they were") {
    LineDeflate deflate;
    Random random(3);
    std::string many = "{\"id\":1", longest;
    for (int i = 0; i < 3000; ++i) many += ",\"a" + std::to_string(i) + "\":" + number(random, 99);
    many += "}}\n";
    for (int i = 0; i < 9000; ++i) longest += "," + number(random, 1'000'000'000);
    for (const std::string& line : {std::string("\n"), std::string("}}\n"), std::string(",\n"),
                                    std::string(100'000, 'a'), std::string(100'000, ','), many, longest}) {
        check_round_trip(deflate, line);
        check_round_trip(deflate, line + line + "\n" + line);
    }
}

TEST("codes stay within their length, however seldom a byte is") {
    LineDeflate deflate;
    std::string text;  // as often as the numbers of Fibonacci: the deepest tree
    for (std::uint32_t letter = 0, a = 1, b = 1; letter < 26; ++letter, b += std::exchange(a, b))
        text.append(a, static_cast<char>('a' + letter));
    check_round_trip(deflate, text);
}

TEST("the same text gives the same bytes, whatever was compressed before") {
    Random random(4);
    const std::string text = trace_lines(random, 3000), other = trace_lines(random, 500);
    LineDeflate first, second;
    const std::string bytes = packed(first, text, text.size());
    packed(second, other, other.size());
    CHECK(packed(second, text, text.size()) == bytes);
}

TEST("where there is no room nothing is written, and none of it elsewhere") {
    LineDeflate deflate;
    Random random(5);
    const std::string text = trace_lines(random, 6000);
    const std::size_t needed = packed(deflate, text, text.size()).size();
    constexpr std::size_t behind = 8;
    CHECK_EQ(packed(deflate, text, needed + behind).size(), needed);
    for (const std::size_t room :
         {needed + behind - 1, needed / 2, std::size_t{9}, std::size_t{8}, std::size_t{0}})
        CHECK_EQ(packed(deflate, text, room).size(), 0);
}
