// gzip members, zstd frames by libzstd.
#include "dftrace/writing/codec.hpp"

#include <libdeflate.h>
#include <zstd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>

#include "dftrace/deflating/gzip_members.hpp"

namespace dftrace {

namespace {

class Plain final : public BlockCodec {
  public:
    void append(std::string& out, std::string_view block, const BlockFacts&) override { out.append(block); }
    std::string text(std::string_view block, std::size_t most) const override {
        return block.size() <= most ? std::string(block) : std::string();
    }
};

class Gzip final : public BlockCodec {
  public:
    explicit Gzip(int level) : members_(level) {}
    void append(std::string& out, std::string_view block, const BlockFacts& facts) override {
        out.append(members_.member(block, facts));
    }
    std::string text(std::string_view block, std::size_t most) const override {
        // A member ends with the length of its text.
        constexpr std::size_t least = 18;
        std::uint32_t length = 0;
        if (block.size() < least) return {};
        std::memcpy(&length, block.data() + block.size() - sizeof length, sizeof length);
        if (length > most) return {};
        const std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> inflate(
            libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
        if (!inflate) throw std::bad_alloc();
        std::string found(length, '\0');
        const bool whole = libdeflate_gzip_decompress(inflate.get(), block.data(), block.size(), found.data(),
                                                      found.size(), nullptr) == LIBDEFLATE_SUCCESS;
        return whole ? found : std::string();
    }

  private:
    GzipMembers members_;
};

class Zstd final : public BlockCodec {
  public:
    explicit Zstd(int level) : level_(level ? level : 1) {
        if (level_ < ZSTD_minCLevel() || level_ > ZSTD_maxCLevel())
            throw std::invalid_argument("zstd level " + std::to_string(level));
        context_ = ZSTD_createCCtx();  // last: a constructor that throws frees nothing
        if (!context_) throw std::bad_alloc();
    }
    ~Zstd() override { ZSTD_freeCCtx(context_); }
    void append(std::string& out, std::string_view block, const BlockFacts& facts) override {
        const std::size_t before = out.size(), body = before + zstd_head_bytes;
        out.resize(body + ZSTD_compressBound(block.size()));
        const std::size_t bytes = ZSTD_compressCCtx(context_, out.data() + body, out.size() - body,
                                                    block.data(), block.size(), level_);
        if (ZSTD_isError(bytes)) {
            out.resize(before);      // what stands there is no block
            throw std::bad_alloc();  // with room for the bound the only reason there is
        }
        out.resize(body + bytes);
        put_zstd_head(out.data() + before, facts.of_size(block.size(), zstd_head_bytes + bytes));
    }
    std::string text(std::string_view block, std::size_t most) const override {
        block.remove_prefix(std::min(skippable_bytes(block), block.size()));
        const unsigned long long length = ZSTD_getFrameContentSize(block.data(), block.size());
        if (length > most) return {};  // unknown and damaged are greater than any length
        std::string found(static_cast<std::size_t>(length), '\0');
        const std::size_t bytes = ZSTD_decompress(found.data(), found.size(), block.data(), block.size());
        return !ZSTD_isError(bytes) && bytes == found.size() ? found : std::string();
    }

  private:
    ZSTD_CCtx* context_ = nullptr;
    int level_;
};

}  // namespace

std::unique_ptr<BlockCodec> make_codec(Compression compression, int level) {
    switch (compression) {
        case Compression::gzip: return std::make_unique<Gzip>(level);
        case Compression::zstd: return std::make_unique<Zstd>(level);
        case Compression::none: break;
    }
    return std::make_unique<Plain>();
}

std::string gzip_library() { return "libdeflate " LIBDEFLATE_VERSION_STRING; }
std::string zstd_library() { return std::string("libzstd ") + ZSTD_versionString(); }

}  // namespace dftrace
