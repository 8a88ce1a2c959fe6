// The record of a tensor, in one pass over its memory.
#pragma once

#include <cstddef>

#include "dftrace/tensor/elements.hpp"
#include "dftrace/tensor/fp8.hpp"
#include "dftrace/tensor/record.hpp"

namespace dftrace::tensor {

enum class Depth {
    six,    // everything but n_zero and amin_nonzero (both NaN), n_over and n_under
    zeros,  // and those two
    fp8,    // and what an 8-bit format would clip or lose
};

struct CollectOrder {
    Element element = Element::fp32;
    Depth depth = Depth::zeros;
    Fp8Thresholds thresholds{};  // for Depth::fp8
    unsigned threads = 1;
};

// The same bits whatever the number of threads: blocks of a fixed size are merged in their order.
Record collect(const void* data, std::size_t count, const CollectOrder& order);

}  // namespace dftrace::tensor
