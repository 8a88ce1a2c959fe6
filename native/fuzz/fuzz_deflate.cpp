// Any bytes, and lines that repeat pieces of them, compressed and unpacked again: by libdeflate, and by zlib
// where it is installed. As lines, and by what chooses for a block.
#include <libdeflate.h>
#if __has_include(<zlib.h>)
#include <zlib.h>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "dftrace/deflating/block_deflate.hpp"
#include "dftrace/deflating/line_deflate.hpp"

namespace {

[[noreturn]] void fail(const char* what) {
    std::fprintf(stderr, "%s\n", what);
    std::abort();
}

// Bytes above 0xF0 say what of the text so far comes once more; others stand for themselves.
std::string text_of(const std::uint8_t* data, std::size_t bytes) {
    constexpr std::size_t most = 100'000;  // there is a choice from 65,536 on
    std::string text;
    for (std::size_t i = 0; i < bytes && text.size() < most; ++i) {
        if (data[i] < 0xF0 || i + 3 >= bytes || text.empty()) {
            text += static_cast<char>(data[i]);
            continue;
        }
        const std::size_t from = (data[i + 1] * 256u + data[i + 2]) % text.size();
        for (std::size_t n = 1u << (data[i] & 15), k = 0; k < n + data[i + 3]; ++k) text += text[from + k];
        i += 3;
    }
    return text;
}

void check_reads(char* packed, std::size_t length, std::string_view text) {
    static libdeflate_decompressor* const inflater = libdeflate_alloc_decompressor();
    const std::unique_ptr<char[]> back(new char[text.size()]);
    std::size_t read = 0, written = 0;
    if (libdeflate_deflate_decompress_ex(inflater, packed, length, back.get(), text.size(), &read,
                                         &written) != LIBDEFLATE_SUCCESS ||
        read != length || std::string_view(back.get(), written) != text)
        fail("libdeflate reads another text");
#if __has_include(<zlib.h>)
    z_stream stream{};
    if (inflateInit2(&stream, -15) != Z_OK) fail("no zlib");
    std::string again(text.size() + 1, '?');
    stream.next_in = reinterpret_cast<Bytef*>(packed);
    stream.avail_in = static_cast<uInt>(length);
    stream.next_out = reinterpret_cast<Bytef*>(again.data());
    stream.avail_out = static_cast<uInt>(again.size());
    const int result = inflate(&stream, Z_FINISH);
    again.resize(stream.total_out);
    inflateEnd(&stream);
    if (result != Z_STREAM_END || stream.avail_in || again != text) fail("zlib reads another text");
#endif
}

void check_lines(std::string_view text, bool enough_room) {
    static dftrace::LineDeflate deflate;
    const std::size_t room = enough_room ? 2 * text.size() + 1024 : text.size() / 2;
    const std::unique_ptr<char[]> packed(new char[room]);
    const std::size_t length = deflate.compress(text, packed.get(), room);
    if (length > room) fail("more than there is room for");
    if (length)
        check_reads(packed.get(), length, text);
    else if (enough_room)
        fail("there was room");
}

void check_choice(std::string_view text) {
    static dftrace::BlockDeflate deflate(0), other(0);
    const std::size_t room = deflate.most_bytes(text.size());
    const std::unique_ptr<char[]> packed(new char[room]), again(new char[room]);
    const std::size_t length = deflate.compress(text, packed.get());
    if (length > room) fail("more than the most bytes");
    check_reads(packed.get(), length, text);
    // The other has compressed what came before in another order.
    if (text.size() % 2) other.compress(text.substr(text.size() / 3), again.get());
    if (other.compress(text, again.get()) != length ||
        std::string_view(again.get(), length) != std::string_view(packed.get(), length))
        fail("other bytes for the same block");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    const std::string text = text_of(data, bytes);
    // In memory of exactly that size, so that it is seen what is read beyond it.
    const std::unique_ptr<char[]> exact(new char[text.size()]);
    text.copy(exact.get(), text.size());
    check_lines({exact.get(), text.size()}, bytes % 3 != 0);
    check_choice({exact.get(), text.size()});
    return 0;
}
