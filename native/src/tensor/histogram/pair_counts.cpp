// When pairs are counted, in which window of magnitudes, and how bins are made of them.
#include "tensor/histogram/pair_counts.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include "dftrace/tensor/histogram.hpp"
#include "tensor/number_formats.hpp"

namespace dftrace::tensor {

namespace {

// For fewer elements tables are not worth their making.
constexpr std::size_t least_elements = 128 * 1024;
constexpr std::uint32_t octave = 8;
// Of the window's sixteen octaves most lie below the mean magnitude: few numbers are many times as large
// as the mean, and many are far smaller.
constexpr std::uint32_t octaves_below = 11;
// The window stays where it is as long as the mean moves no further than this from where it was.
constexpr std::uint32_t play = 2 * octave;
constexpr std::uint32_t magnitude_bins = histogram_bins / 2;
// With more of them outside of the window counting one by one is quicker.
constexpr std::size_t most_outside = 32;  // one of so many
// Where one pair of so many or more is the same, tables take turns.
constexpr std::size_t often = 2;
constexpr std::size_t most_pairs = std::numeric_limits<std::uint16_t>::max();

std::uint32_t window_below(double mean_magnitude) {
    const double finite = std::min<double>(mean_magnitude, std::numeric_limits<float>::max());
    const std::uint32_t bin = (bits_of(static_cast<float>(finite)) & magnitude_mask) >> histogram_shift;
    const std::uint32_t first = bin - std::min(bin, octaves_below * octave);
    return std::min(first, magnitude_bins - PairTables::outside);
}

}  // namespace

void PairCounts::begin(std::size_t elements) noexcept { one_by_one_ = elements < least_elements; }

std::size_t PairCounts::take(Element element, const void* data, std::size_t count, const Record& record,
                             std::uint32_t* bins) {
    if (one_by_one_ || element == Element::fp64) return 0;
    const CountPairs count_pairs = kernels_in_use().count_pairs[static_cast<int>(element)];
    if (!count_pairs) return 0;
    // The processor makes quiet ones of those that are not: another bin.
    if (element == Element::fp16 && record.n_nan > 0) return 0;
    const std::uint32_t first = window_below(record.absolute_sum / std::max(1.0, record.n_finite));
    const std::uint32_t moved = std::max(first, tables_.first) - std::min(first, tables_.first);
    if (moved > play) empty(bins);
    if (2 * room_ < count - count / 8) make_room(bins);
    if (!room_) return 0;
    const std::size_t size = std::min(count, 2 * room_) / pair_step * pair_step;
    if (!pairs_) tables_.first = first;
    tables_.bins = bins;
    const std::uint32_t before = tables_.outside_of_sign[0] + tables_.outside_of_sign[1];
    count_pairs(data, size, tables_);
    pairs_ += size / 2;
    room_ -= size / 2;
    const std::uint32_t outside = tables_.outside_of_sign[0] + tables_.outside_of_sign[1] - before;
    one_by_one_ = outside > size / most_outside;
    return size;
}

// The counts of each table have to fit, should all pairs to come be the same one.
void PairCounts::make_room(std::uint32_t* bins) {
    std::size_t largest = 0;
    if (pairs_) {
        for (std::size_t i = 0; i < tables_.in_use; ++i)
            largest = std::max<std::size_t>(largest, kernels_in_use().largest_pair(tables_.pairs[i]));
        const std::size_t wanted = largest * tables_.in_use * often > pairs_ ? PairTables::most : 1;
        if (wanted != tables_.in_use || largest > most_pairs / 2) {
            empty(bins);
            tables_.in_use = wanted;
            largest = 0;
        }
    }
    for (std::size_t i = 0; i < tables_.in_use; ++i) {
        if (!memory_[i]) memory_[i].reset(new (std::nothrow) Table());
        if (!memory_[i]) {
            one_by_one_ = true;
            room_ = 0;
            return;
        }
        tables_.pairs[i] = memory_[i]->pairs + i * Table::step;
    }
    room_ = (most_pairs - largest) / pair_step * pair_step * tables_.in_use;
}

void PairCounts::empty(std::uint32_t* bins) {
    if (!pairs_) return;
    std::uint32_t by_code[PairTables::codes] = {};
    for (std::size_t i = 0; i < tables_.in_use; ++i) kernels_in_use().empty_pairs(tables_.pairs[i], by_code);
    for (std::uint32_t sign = 0; sign < 2; ++sign) {
        const std::uint32_t* of_sign = by_code + sign * PairTables::magnitudes;
        std::uint32_t* bins_of_sign = bins + sign * magnitude_bins;
        for (std::uint32_t place = 0; place < PairTables::outside; ++place)
            bins_of_sign[tables_.first + place] += of_sign[place];
        // What is not in the window was counted already, but for zeros.
        bins_of_sign[0] += of_sign[PairTables::outside] - tables_.outside_of_sign[sign];
        tables_.outside_of_sign[sign] = 0;
    }
    pairs_ = room_ = 0;
}

}  // namespace dftrace::tensor
