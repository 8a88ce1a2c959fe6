// Columns that grow: a piece is looked at once for what holds it, and once more to be put there.
#include "dftrace/reading/traces/narrow_column.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

namespace dftrace {

namespace {

using Form = NarrowColumn::Form;

// Calls with a number of the form.
template <typename Call>
decltype(auto) by_form(Form form, Call call) {
    switch (form) {
        case Form::u8: return call(std::uint8_t{});
        case Form::u16: return call(std::uint16_t{});
        case Form::u32: return call(std::uint32_t{});
        case Form::i32: return call(std::int32_t{});
        case Form::u64: return call(std::uint64_t{});
        default: return call(std::int64_t{});
    }
}

template <typename Number>
bool fits(Form form, Number least, Number most) {
    return by_form(form, [&]<typename To>(To) {
        using Limits = std::numeric_limits<To>;
        return std::in_range<To>(least) && std::in_range<To>(most) && Limits::is_integer;
    });
}

}  // namespace

std::size_t NarrowColumn::width_of(Form form) noexcept {
    return by_form(form, [](auto number) { return sizeof number; });
}

void NarrowColumn::make_room(std::size_t rows) {
    if (rows <= room_) return;
    const std::size_t room = rows + rows / 2 + 64;
    void* const moved = std::realloc(bytes_.get(), room * width_of(form()));
    if (!moved) throw std::bad_alloc();
    static_cast<void>(bytes_.release());
    bytes_.reset(static_cast<char*>(moved));
    room_ = room;
}

void NarrowColumn::widen() {
    const Form before = form();
    forms_.erase(forms_.begin());
    if (!bytes_) return;
    const Bytes narrow = std::exchange(bytes_, nullptr);
    room_ = 0;
    const std::size_t rows = std::exchange(rows_, 0);
    make_room(std::max<std::size_t>(rows, 1));
    by_form(before, [&]<typename From>(From) {
        const auto* const values = reinterpret_cast<const From*>(narrow.get());
        by_form(form(), [&]<typename To>(To) { put<To>(values, rows, 1); });
    });
    rows_ = rows;
}

template <typename To, typename Number>
void NarrowColumn::put(const Number* values, std::size_t rows, std::size_t stride) noexcept {
    auto* const into = reinterpret_cast<To*>(bytes_.get()) + rows_;
    if (stride == 1)
        for (std::size_t row = 0; row < rows; ++row) into[row] = static_cast<To>(values[row]);
    else
        for (std::size_t row = 0; row < rows; ++row) into[row] = static_cast<To>(values[row * stride]);
}

template <typename Number>
void NarrowColumn::add(const Number* values, std::size_t rows, std::size_t stride) {
    if (rows == 0) return;
    if (forms_.size() == 1 && bytes_) {
        append(values, rows, stride);
        return;
    }
    Number least = values[0], most = values[0];
    if (stride == 1) {
        for (std::size_t row = 0; row < rows; ++row) {
            least = std::min(least, values[row]);
            most = std::max(most, values[row]);
        }
    } else {
        for (std::size_t row = 0; row < rows; ++row) {
            least = std::min(least, values[row * stride]);
            most = std::max(most, values[row * stride]);
        }
    }
    while (forms_.size() > 1 && !fits(form(), least, most)) widen();
    if (rows_ == 0 && !bytes_) same_ = static_cast<std::int64_t>(values[0]);
    if (!bytes_ && (least != most || static_cast<std::int64_t>(least) != same_)) {
        make_room(rows_ + rows);
        by_form(form(), [&]<typename To>(To) {
            std::fill_n(reinterpret_cast<To*>(bytes_.get()), rows_, static_cast<To>(same_));
        });
    }
    if (bytes_)
        append(values, rows, stride);
    else
        rows_ += rows;
}

template <typename Number>
void NarrowColumn::append(const Number* values, std::size_t rows, std::size_t stride) {
    make_room(rows_ + rows);
    by_form(form(), [&]<typename To>(To) { put<To>(values, rows, stride); });
    rows_ += rows;
}

NarrowColumn::Bytes NarrowColumn::take() {
    if (bytes_ && room_ > rows_) {
        void* const moved = std::realloc(bytes_.get(), std::max<std::size_t>(rows_, 1) * width_of(form()));
        if (moved) {
            static_cast<void>(bytes_.release());
            bytes_.reset(static_cast<char*>(moved));
        }
    }
    rows_ = room_ = 0;
    return std::exchange(bytes_, nullptr);
}

std::size_t NarrowColumn::below(std::int64_t bound) const {
    if (!bytes_) return rows_ && same_ < bound ? rows_ : 0;
    return by_form(form(), [&]<typename To>(To) {
        const auto* const values = reinterpret_cast<const To*>(bytes_.get());
        return static_cast<std::size_t>(
            std::lower_bound(values, values + rows_, bound,
                             [](To value, std::int64_t most) { return std::cmp_less(value, most); }) -
            values);
    });
}

template void NarrowColumn::add(const std::uint8_t*, std::size_t, std::size_t);
template void NarrowColumn::add(const std::uint32_t*, std::size_t, std::size_t);
template void NarrowColumn::add(const std::uint64_t*, std::size_t, std::size_t);
template void NarrowColumn::add(const std::int64_t*, std::size_t, std::size_t);

}  // namespace dftrace
