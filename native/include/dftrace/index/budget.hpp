// What the names and figures of traces may take of memory, counted as they grow.
#pragma once

#include <atomic>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace dftrace {

// The traces hold more names, tracks or durations than there is room for.
class TooMuch : public std::runtime_error {
  public:
    TooMuch() : std::runtime_error("more names than there is memory for") {}
};

class Budget {
  public:
    explicit Budget(std::size_t bytes) noexcept : left_(static_cast<std::ptrdiff_t>(bytes)) {}
    void take(std::size_t bytes) {
        if (left_.fetch_sub(static_cast<std::ptrdiff_t>(bytes), std::memory_order_relaxed) <
            static_cast<std::ptrdiff_t>(bytes))
            throw TooMuch();
    }
    void give_back(std::size_t bytes) noexcept {
        left_.fetch_add(static_cast<std::ptrdiff_t>(bytes), std::memory_order_relaxed);
    }

  private:
    std::atomic<std::ptrdiff_t> left_;
};

// The element at a place, in a vector that grows at the expense of a budget until it has that.
template <typename Element>
Element& grown(std::vector<Element>& elements, std::size_t at, Budget& budget) {
    if (at >= elements.size()) {
        const std::size_t size = at + at / 2 + 16;
        budget.take((size - elements.size()) * sizeof(Element));
        elements.resize(size);
    }
    return elements[at];
}

}  // namespace dftrace
