// The loop that sums a block and counts its elements by their uppermost bits, two at a time, for files that
// are built for processors with AVX2 or more; all of it is internal to the file that includes it.
#pragma once

#include <immintrin.h>

#include "tensor/avx2/quick_lanes.hpp"
#include "tensor/block_kernels.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

constexpr std::size_t line_bytes = 64;

// What was coded is counted two steps later: it does not have to wait until it is written, and the
// processor does both at a time.
constexpr std::size_t delay = 2, ring = 2 * delay;

// Codes are made of an element's upper half, which has all bits that its bin is made of.
template <class Format>
struct Upper {
    // Of fp32 and bf16 the bin is what lies above this bit; of fp16 it is the same but for its exponent.
    static constexpr int bin_at = Format::infinity == Fp16::infinity ? 7 : 4;
    static constexpr std::uint32_t first_bin = Format::infinity == Fp16::infinity ? (127 - 15) * 8 : 0;
    // The largest magnitude of the bin of zero. Of fp16 other numbers have an exponent in fp32.
    static constexpr unsigned zero_bin = Format::infinity == Fp16::infinity ? 0 : (1 << bin_at) - 1;
};

template <class Format>
std::uint32_t bin_of_upper(std::uint16_t upper) {
    if constexpr (Format::infinity == Fp16::infinity)
        return bits_of(Fp16::widen(upper)) >> 20;
    else
        return upper >> Upper<Format>::bin_at;
}

template <std::size_t pairs_of_step, std::size_t in_use>
INLINE void count_step(const std::uint16_t* coded, std::uint16_t* const* pairs) {
#pragma GCC unroll 32
    for (std::size_t pair = 0; pair < pairs_of_step; ++pair) ++pairs[pair % in_use][coded[pair]];
}

// Of fp32 memory is waited for most. It comes to the second-level cache without taking the places in which
// what the tables lack in the first one is waited for.
template <std::size_t element_bytes>
INLINE void prefetch(const void* x, std::size_t bytes) {
    const auto* line = static_cast<const char*>(x);
    for (std::size_t i = 0; i < bytes; i += line_bytes) {
        if constexpr (element_bytes == 4)
            _mm_prefetch(line + i + 4096, _MM_HINT_T1);
        else
            _mm_prefetch(line + i + 2048, _MM_HINT_T0);
    }
}

// A machine has lanes that take sixteen or thirty-two elements at a time, their moments, and a coder of
// `step` elements.
template <class Machine, bool shifted, std::size_t in_use>
bool sums_and_pairs(const void* data, std::size_t count, float shift, PairTables& tables, Record& record) {
    using Format = typename Machine::Format;
    using Lanes = typename Machine::Lanes;
    constexpr std::size_t step = Machine::step, fold = Lanes::step * Lanes::steps_a_fold;
    static_assert(pair_step % fold == 0 && fold % step == 0 && Lanes::step == 16);
    static_assert(PairTables::most == 4 && pair_step / step >= delay);
    const auto* x = static_cast<const typename Format::Stored*>(data);
    const MagnitudeLimits limits{};
    typename Machine::template Moments<shifted> moments(shift);
    Lanes lanes(limits);
    const typename Machine::Coder coder(tables.first);
    std::uint16_t* const pairs[] = {tables.pairs[0], tables.pairs[1 % in_use], tables.pairs[2 % in_use],
                                    tables.pairs[3 % in_use]};
    alignas(64) std::uint16_t coded[ring][step / 2];
    const std::size_t in_pairs = count / pair_step * pair_step;
    std::size_t i = 0, steps = 0;
    while (i < in_pairs) {
        for (const std::size_t end = i + fold; i < end; i += step, ++steps) {
            prefetch<sizeof *x>(x + i, step * sizeof *x);
            for (std::size_t at = i; at < i + step; at += 32) Machine::take32(lanes, x + at, moments);
            coder.code(x + i, coded[steps % ring], tables);
            if (steps >= delay) count_step<step / 2, in_use>(coded[(steps - delay) % ring], pairs);
        }
        moments.fold();
    }
    for (std::size_t left = steps < delay ? steps : delay; left > 0; --left)
        count_step<step / 2, in_use>(coded[(steps - left) % ring], pairs);
    while (i + Lanes::step <= count) {
        for (const std::size_t end = i + fold; i < end && i + Lanes::step <= count; i += Lanes::step)
            lanes.take(x + i, moments);
        moments.fold();
    }
    return record_of_totals<Lanes, 0>({moments, lanes}, x, i, count, shift, limits, record);
}

template <class Machine>
INLINE bool counted_sums(const void* data, std::size_t count, float shift, PairTables& tables,
                         Record& record) {
    constexpr std::size_t most = PairTables::most;
    if (tables.in_use == 1)
        return shift == 0.0f ? sums_and_pairs<Machine, false, 1>(data, count, shift, tables, record)
                             : sums_and_pairs<Machine, true, 1>(data, count, shift, tables, record);
    return shift == 0.0f ? sums_and_pairs<Machine, false, most>(data, count, shift, tables, record)
                         : sums_and_pairs<Machine, true, most>(data, count, shift, tables, record);
}

}  // namespace

}  // namespace dftrace::tensor
