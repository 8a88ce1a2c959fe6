// When pairs are counted, in which window of magnitudes, and how bins are made of them.
#include "tensor/histogram/pair_counts.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include "dftrace/tensor/collect.hpp"
#include "tensor/block_sums.hpp"
#include "tensor/default_arithmetic.hpp"

namespace dftrace::tensor {

namespace {

// For fewer elements tables are not worth their making.
constexpr std::size_t least_elements = 128 * 1024;
// By so many the first window is chosen.
constexpr std::size_t first_elements = 4096;
constexpr std::uint32_t octave = 8;
// Of the window's sixteen octaves most lie below the mean magnitude: few numbers are many times as large
// as the mean, and many are far smaller.
constexpr std::uint32_t octaves_below = 11;
// The window stays where it is as long as the mean moves no further than this from where it was.
constexpr std::uint32_t play = 2 * octave;
// With more of them outside of the window counting one by one is quicker.
constexpr std::size_t most_outside = 32;  // one of so many
// Where one pair of so many or more is the same, tables take turns.
constexpr std::size_t often = 2;
constexpr std::size_t most_pairs = std::numeric_limits<std::uint16_t>::max();

// Of fp16 the window lies within its normal numbers: only they have the bits of their bins.
constexpr std::uint32_t fp16_bins_begin = (127 - 14) * octave, fp16_bins_end = (127 + 16) * octave;

std::uint32_t window_below(double mean_magnitude, Element element) {
    const double finite = std::min<double>(mean_magnitude, std::numeric_limits<float>::max());
    const std::uint32_t bin = (bits_of(static_cast<float>(finite)) & magnitude_mask) >> histogram_shift;
    const std::uint32_t first = bin - std::min(bin, octaves_below * octave);
    if (element == Element::fp16)
        return std::clamp(first, fp16_bins_begin, fp16_bins_end - PairTables::outside);
    return std::min(first, magnitude_bins - PairTables::outside);
}

bool is_near(std::uint32_t window, std::uint32_t other) {
    return std::max(window, other) - std::min(window, other) <= play;
}

// What the tables of pairs should hold, but for what was outside of their window.
template <class Format>
void count_window(const void* data, std::size_t count, std::uint32_t first, std::uint32_t* bins) {
    const auto* elements = static_cast<const typename Format::Stored*>(data);
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t bin = bin_of<Format>(elements[i]), magnitude = bin % magnitude_bins;
        if (magnitude - first < PairTables::outside || magnitude == 0) ++bins[bin];
    }
}

using CountWindow = void (*)(const void* data, std::size_t count, std::uint32_t first, std::uint32_t* bins);
constexpr CountWindow count_window_of[] = {count_window<Fp32>, count_window<Bf16>, count_window<Fp16>};

}  // namespace

void PairCounts::begin(Element element, const void* data, std::size_t elements) {
    element_ = element;
    one_by_one_ = true;
    if (elements < least_elements || element == Element::fp64) return;
    kernels_ = &kernels_in_use();
    one_by_one_ = !kernels_->counted_sums[static_cast<int>(element)];
    if (!one_by_one_) watch(collect(data, first_elements, {element, Depth::six, {}, 1}));
}

void PairCounts::watch(const Record& record) {
    window_ = window_below(record.absolute_sum / std::max(1.0, record.n_finite), element_);
}

std::size_t PairCounts::take(const void* data, std::size_t count, std::uint32_t* bins, Record& record) {
    const std::size_t size = count / pair_step * pair_step;
    if (one_by_one_ || !size) return 0;
    if (pairs_ + size / 2 > most_held_ || !is_near(window_, tables_.first)) empty(bins);
    const bool first = pairs_ == 0;
    if (first) {
        if (!make_tables()) return 0;
        held_ = data;
        tables_.first = window_;
    }
    tables_.bins = bins;
    const std::uint32_t before = tables_.outside_of_sign[0] + tables_.outside_of_sign[1];
    {
        const DefaultArithmetic arithmetic;
        const auto index = static_cast<int>(element_);
        const QuickSums probe = kernels_->quick_sums[index][static_cast<int>(Depth::six)];
        const float shift = shift_of_block(probe, data, count);
        if (!kernels_->counted_sums[index](data, count, shift, tables_, record))
            record = careful_sums(data, count, {element_, Depth::six, {}, 1});
    }
    pairs_ += size / 2;
    watch(record);
    const std::uint32_t outside = tables_.outside_of_sign[0] + tables_.outside_of_sign[1] - before;
    if (outside > size / most_outside && is_near(window_, tables_.first)) one_by_one_ = true;
    if (first) look_at_first_block(bins);
    return size;
}

// Counts of one block fit, whatever they are.
bool PairCounts::make_tables() {
    for (std::size_t i = 0; i < tables_.in_use; ++i) {
        if (!memory_[i]) memory_[i].reset(new (std::nothrow) Table());
        if (!memory_[i]) {
            one_by_one_ = true;
            return false;
        }
        tables_.pairs[i] = memory_[i]->pairs + i * Table::step;
    }
    most_held_ = most_pairs * tables_.in_use;
    return true;
}

void PairCounts::look_at_first_block(std::uint32_t* bins) {
    std::size_t largest = 1;
    for (std::size_t i = 0; i < tables_.in_use; ++i)
        largest = std::max<std::size_t>(largest, kernels_->largest_pair(tables_.pairs[i]));
    const std::size_t wanted = largest * tables_.in_use * often > pairs_ ? PairTables::most : 1;
    if (wanted != tables_.in_use) {
        empty(bins);
        tables_.in_use = wanted;
    } else if (tables_.in_use == 1) {
        // As long as the pairs to come are like these, with a quarter to spare. Should they not be, it
        // shows when the table is emptied.
        most_held_ = std::max(most_held_, most_pairs * 3 / 4 * pairs_ / largest);
    }
}

void PairCounts::empty(std::uint32_t* bins) {
    if (!pairs_) return;
    std::uint32_t by_code[PairTables::codes] = {};
    for (std::size_t i = 0; i < tables_.in_use; ++i) kernels_->empty_pairs(tables_.pairs[i], by_code);
    std::size_t found = 0;
    for (const std::uint32_t elements : by_code) found += elements;
    if (found == 2 * pairs_) {
        for (std::uint32_t sign = 0; sign < 2; ++sign) {
            const std::uint32_t* of_sign = by_code + sign * PairTables::magnitudes;
            std::uint32_t* bins_of_sign = bins + sign * magnitude_bins;
            for (std::uint32_t place = 0; place < PairTables::outside; ++place)
                bins_of_sign[tables_.first + place] += of_sign[place];
            // What is not in the window was counted already, but for zeros.
            bins_of_sign[0] += of_sign[PairTables::outside] - tables_.outside_of_sign[sign];
        }
    } else {
        // A count did not fit and began anew.
        count_window_of[static_cast<int>(element_)](held_, 2 * pairs_, tables_.first, bins);
    }
    tables_.outside_of_sign[0] = tables_.outside_of_sign[1] = 0;
    pairs_ = most_held_ = 0;
}

}  // namespace dftrace::tensor
