// In which bin an element lies.
#pragma once

#include "dftrace/tensor/histogram.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

constexpr std::uint32_t magnitude_bins = histogram_bins / 2;

template <class Format>
std::uint32_t bin_of(typename Format::Stored stored) {
    return bits_of(static_cast<float>(Format::widen(stored))) >> histogram_shift;
}

}  // namespace

}  // namespace dftrace::tensor
