// In wheels, the decoders of zstd's formats before 0.8 are left out of the library that is linked in: a trace
// is none of these, and who hands one on may be hostile. What the library asks them is answered here, always
// with no.
#include <zstd.h>
#include <zstd_errors.h>

#include <cstddef>

namespace {

constexpr std::size_t unsupported = static_cast<std::size_t>(-ZSTD_error_version_unsupported);

}  // namespace

// The functions by which libzstd reaches the decoders of one format.
#define DFTRACE_NO_OLD_ZSTD(version)                                                                        \
    void* ZSTDv0##version##_createDCtx() { return nullptr; }                                                \
    std::size_t ZSTDv0##version##_freeDCtx(void*) { return 0; }                                             \
    std::size_t ZSTDv0##version##_decompress_usingDict(void*, void*, std::size_t, const void*, std::size_t, \
                                                       const void*, std::size_t) {                          \
        return unsupported;                                                                                 \
    }                                                                                                       \
    void ZSTDv0##version##_findFrameSizeInfoLegacy(const void*, std::size_t, std::size_t* bytes,            \
                                                   unsigned long long* most) {                              \
        *bytes = unsupported;                                                                               \
        *most = ZSTD_CONTENTSIZE_ERROR;                                                                     \
    }                                                                                                       \
    std::size_t ZSTDv0##version##_getFrameParams(void*, const void*, std::size_t) { return unsupported; }   \
    void* ZBUFFv0##version##_createDCtx() { return nullptr; }                                               \
    std::size_t ZBUFFv0##version##_freeDCtx(void*) { return 0; }                                            \
    std::size_t ZBUFFv0##version##_decompressInitDictionary(void*, const void*, std::size_t) {              \
        return unsupported;                                                                                 \
    }                                                                                                       \
    std::size_t ZBUFFv0##version##_decompressContinue(void*, void*, std::size_t*, const void*,              \
                                                      std::size_t*) {                                       \
        return unsupported;                                                                                 \
    }

extern "C" {
DFTRACE_NO_OLD_ZSTD(5)
DFTRACE_NO_OLD_ZSTD(6)
DFTRACE_NO_OLD_ZSTD(7)
}
