// A sample says which way suits a block.
#include "dftrace/deflating/block_deflate.hpp"

#include <libdeflate.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace dftrace {

namespace {

constexpr int default_level = 5;  // smaller than what dftracer writes
// In a smaller one a sample would be as dear as the block.
constexpr std::size_t least_block = 64u << 10;
constexpr std::size_t large_block = 512u << 10;  // has several parts
constexpr std::size_t slack = 64;                // lines may take a 64th more

double ratio(std::size_t packed_bytes, std::string_view text) noexcept {
    return static_cast<double>(packed_bytes) / static_cast<double>(text.size());
}

}  // namespace

BlockDeflate::BlockDeflate(int level)
    : library_(libdeflate_alloc_compressor(level == quick_level ? 1
                                           : level              ? level
                                                                : default_level)),
      quick_(level == quick_level) {
    if (!library_) throw std::invalid_argument(std::string("gzip level ").append(std::to_string(level)));
    try {
        if (!level || quick_) lines_.emplace();
    } catch (...) {
        libdeflate_free_compressor(library_);  // a constructor that throws has no destructor
        throw;
    }
}

BlockDeflate::~BlockDeflate() { libdeflate_free_compressor(library_); }

std::size_t BlockDeflate::most_bytes(std::size_t plain_bytes) const noexcept {
    return libdeflate_deflate_compress_bound(library_, plain_bytes);
}

std::size_t BlockDeflate::by_library(std::string_view text, char* out, std::size_t room) noexcept {
    return libdeflate_deflate_compress(library_, text.data(), text.size(), out, room);
}

// Whole lines from several places; empty where lines are too long for that.
std::string_view BlockDeflate::sample_of(std::string_view block) noexcept {
    char* at = sample_.data();
    for (std::size_t piece = 0; piece < pieces; ++piece) {
        const std::size_t begin = block.find('\n', block.size() * (2 * piece + 1) / (2 * pieces)) + 1;
        const std::size_t end = block.find('\n', begin + piece_bytes);
        if (begin == 0 || end == std::string_view::npos || end + 1 - begin > 2 * piece_bytes) return {};
        at += block.copy(at, end + 1 - begin, begin);
    }
    return {sample_.data(), static_cast<std::size_t>(at - sample_.data())};
}

BlockDeflate::Suits BlockDeflate::what_suits(std::string_view sample) noexcept {
    const std::size_t by_lines = lines_->compress(sample, sample_out_.data(), sample_out_.size());
    if (!by_lines) return Suits::libdeflate;
    // In so little text libdeflate finds fewer words again than in a block, about a tenth where all is words.
    const std::size_t words = lines_->letters_told() / 4;
    const std::size_t library = by_library(sample, sample_out_.data(), sample_out_.size());
    const std::size_t equal = library - library * words / sample.size();
    ratio_ = ratio(by_lines, sample);
    beside_library_ = static_cast<double>(by_lines) / static_cast<double>(equal);
    if (by_lines <= equal + equal / slack) return Suits::lines;
    return by_lines <= equal + equal / 16 ? Suits::either : Suits::libdeflate;
}

// Whether the block is what its sample says.
bool BlockDeflate::is_sure(std::string_view block, std::size_t by_lines) const noexcept {
    const double block_ratio = ratio(by_lines, block);
    // Where the block is not like its sample that says nothing. A longer text takes rather less.
    if (block_ratio > ratio_) return false;
    // Nor where its parts are not alike; those of a loop differ by a twenty-fifth at most.
    if (lines_->densest() > block_ratio * 17 / 16) return false;
    // In a small block it is not known how its parts differ.
    const double most = block.size() < large_block ? 1 : 1 + 1.0 / slack;
    // Libdeflate finds more of what is repeated far away than is known here, and the sample shows none of it.
    return beside_library_ * (1 + 3 * lines_->share_missed()) <= most;
}

std::size_t BlockDeflate::compress(std::string_view block, char* out) {
    const std::size_t room = most_bytes(block.size());
    if (quick_) {
        const std::size_t by_lines = lines_->compress(block, out, room);
        return by_lines ? by_lines : by_library(block, out, room);
    }
    const std::string_view sample =
        lines_ && block.size() >= least_block ? sample_of(block) : std::string_view();
    const Suits suits = sample.empty() ? Suits::libdeflate : what_suits(sample);
    const std::size_t by_lines = suits == Suits::libdeflate ? 0 : lines_->compress(block, out, room);
    if (!by_lines) return by_library(block, out, room);
    if (suits == Suits::lines && is_sure(block, by_lines)) return by_lines;
    char* const other = other_.reserve(room);
    const std::size_t by_other = by_library(block, other, room);
    if (by_lines <= by_other + by_other / slack) return by_lines;
    std::memcpy(out, other, by_other);
    return by_other;
}

}  // namespace dftrace
