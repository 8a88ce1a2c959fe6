// gzip members by libdeflate, zstd frames by libzstd.
#include "dftrace/codec.hpp"

#include <libdeflate.h>
#include <zstd.h>

#include <new>
#include <stdexcept>

namespace dftrace {

namespace {

class Plain final : public BlockCodec {
  public:
    void append(std::string& out, std::string_view block) override { out.append(block); }
};

class Gzip final : public BlockCodec {
  public:
    // Level 5: smaller than what dftracer writes, and still two million lines a second on one core.
    explicit Gzip(int level) : compressor_(libdeflate_alloc_compressor(level ? level : 5)) {
        if (!compressor_) throw std::invalid_argument("gzip level " + std::to_string(level));
    }
    ~Gzip() override { libdeflate_free_compressor(compressor_); }
    void append(std::string& out, std::string_view block) override {
        const std::size_t before = out.size();
        out.resize(before + libdeflate_gzip_compress_bound(compressor_, block.size()));
        out.resize(before + libdeflate_gzip_compress(compressor_, block.data(), block.size(),
                                                     out.data() + before, out.size() - before));
    }

  private:
    libdeflate_compressor* compressor_;
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
    void append(std::string& out, std::string_view block) override {
        const std::size_t before = out.size();
        out.resize(before + ZSTD_compressBound(block.size()));
        const std::size_t bytes = ZSTD_compressCCtx(context_, out.data() + before, out.size() - before,
                                                    block.data(), block.size(), level_);
        if (ZSTD_isError(bytes)) {
            out.resize(before);      // what stands there is no block
            throw std::bad_alloc();  // with room for the bound the only reason there is
        }
        out.resize(before + bytes);
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
