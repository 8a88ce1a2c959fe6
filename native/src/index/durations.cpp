// Percentiles by buckets that grow with what is in them.
#include "dftrace/index/durations.hpp"

#include <algorithm>

namespace dftrace {

// Of the values of a bucket none is further from this one than 1/129 of itself.
double Durations::middle(unsigned bucket) noexcept {
    if (bucket < 2u << bits) return bucket;
    const unsigned octave = (bucket >> bits) - 1;
    const auto width = static_cast<double>(std::uint64_t{1} << octave);
    const auto low = static_cast<double>(std::uint64_t{bucket - (octave << bits)} << octave);
    return 2 * low * (low + width) / (2 * low + width);
}

void Durations::count(unsigned bucket, std::uint64_t times, Budget& budget) {
    std::unique_ptr<Page>& page = (*pages_)[bucket >> bits];
    if (!page) {
        budget.take(sizeof(Page));
        page = std::make_unique<Page>();
    }
    (*page)[bucket & ((1u << bits) - 1)] += times;
}

void Durations::give_up_exactness(Budget& budget) {
    budget.take(sizeof(*pages_));
    pages_ = std::make_unique<std::array<std::unique_ptr<Page>, pages>>();
    for (const std::int64_t ns : exact_) count(bucket(static_cast<std::uint64_t>(ns)), 1, budget);
    budget.give_back(exact_.capacity() * sizeof(std::int64_t));
    exact_ = {};
}

void Durations::add_first(std::int64_t ns, Budget& budget) {
    if (!pages_ && exact_.size() == most_exact) give_up_exactness(budget);
    ++size_;
    if (pages_) return count(bucket(static_cast<std::uint64_t>(ns)), 1, budget);
    if (exact_.size() == exact_.capacity()) {
        const std::size_t more = exact_.empty() ? 2 : exact_.size();
        budget.take(more * sizeof(std::int64_t));
        exact_.reserve(exact_.size() + more);
    }
    exact_.push_back(ns);
}

void Durations::add(const Durations& others, Budget& budget) {
    for (const std::int64_t ns : others.exact_) add(ns, budget);
    if (!others.pages_) return;
    if (!pages_) give_up_exactness(budget);
    for (unsigned page = 0; page < pages; ++page)
        if ((*others.pages_)[page])
            for (unsigned i = 0; i < 1u << bits; ++i)
                if (const std::uint64_t times = (*(*others.pages_)[page])[i])
                    count((page << bits) + i, times, budget);
    size_ += others.size_;
}

void Durations::clear(Budget& budget) noexcept {
    budget.give_back(exact_.capacity() * sizeof(std::int64_t));
    exact_ = {};
    if (pages_) {
        for (const auto& page : *pages_) budget.give_back(page ? sizeof(Page) : 0);
        budget.give_back(sizeof(*pages_));
    }
    pages_.reset();
    size_ = 0;
}

void Durations::forget(Budget& budget) noexcept {
    if (pages_) return clear(budget);
    exact_.clear();
    size_ = 0;
}

double Durations::at_rank(std::uint64_t rank, std::int64_t least, std::int64_t greatest) const noexcept {
    if (rank == 0) return static_cast<double>(least);
    if (rank + 1 >= size_) return static_cast<double>(greatest);
    std::uint64_t seen = 0;
    for (unsigned page = 0; page < pages; ++page) {
        if (!(*pages_)[page]) continue;
        for (unsigned i = 0; i < 1u << bits; ++i)
            if ((seen += (*(*pages_)[page])[i]) > rank)
                return std::clamp(middle((page << bits) + i), static_cast<double>(least),
                                  static_cast<double>(greatest));
    }
    return static_cast<double>(greatest);
}

double Durations::quantile(double share, std::int64_t least, std::int64_t greatest) const {
    if (size_ == 0) return 0;
    const double place = share * static_cast<double>(size_ - 1);
    const auto below = static_cast<std::uint64_t>(place);
    const std::uint64_t above = std::min(below + 1, size_ - 1);
    double low, high;
    if (pages_) {
        low = at_rank(below, least, greatest);
        high = at_rank(above, least, greatest);
    } else {
        std::vector<std::int64_t> parted = exact_;
        const auto at = parted.begin() + static_cast<std::ptrdiff_t>(below);
        std::nth_element(parted.begin(), at, parted.end());
        low = static_cast<double>(*at);
        high = above == below ? low : static_cast<double>(*std::min_element(at + 1, parted.end()));
    }
    return low + (high - low) * (place - static_cast<double>(below));
}

}  // namespace dftrace
