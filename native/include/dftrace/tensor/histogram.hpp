// How the elements of a tensor are distributed, beside their statistics, in one pass over its memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "dftrace/tensor/elements.hpp"
#include "dftrace/tensor/record.hpp"

namespace dftrace::tensor {

// A bin for each sign, exponent and first three bits of the mantissa of fp32: the numbers of a bin have
// the uppermost twelve bits in common. Elements of fp64 are rounded to fp32 first.
constexpr int histogram_shift = 20;
constexpr std::size_t histogram_bins = std::size_t{1} << (32 - histogram_shift);

using BinCounts = std::array<std::uint64_t, histogram_bins>;

// Adds to `bins`, and returns the statistics of the same elements, as `collect` with Depth::six does.
Record histogram(const void* data, std::size_t count, Element element, unsigned threads, BinCounts& bins);

}  // namespace dftrace::tensor
