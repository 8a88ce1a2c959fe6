// A growing run of bytes, lines mostly, that is written through a raw pointer.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

namespace dftrace {

class ByteBuffer {
  public:
    // Room for `bytes` more; write a line there, then say with `commit_line` where it ends.
    char* reserve(std::size_t bytes) {
        if (size_ + bytes > capacity_) [[unlikely]]
            grow(size_ + bytes);
        return data_.get() + size_;
    }
    void commit_line(const char* end) noexcept {
        size_ = static_cast<std::size_t>(end - data_.get());
        ++line_breaks_;
    }
    void append(std::string_view text) {
        if (text.empty()) return;  // it may be at no place
        char* at = reserve(text.size());
        std::memcpy(at, text.data(), text.size());
        size_ += text.size();
        for (std::size_t from = 0; (from = text.find('\n', from)) != text.npos; ++from) ++line_breaks_;
    }
    void clear() noexcept { size_ = line_breaks_ = 0; }
    std::size_t size() const noexcept { return size_; }
    std::size_t line_breaks() const noexcept { return line_breaks_; }
    std::string_view view() const noexcept { return {data_.get(), size_}; }

  private:
    void grow(std::size_t needed) {
        std::size_t capacity = capacity_ ? capacity_ : 4096;
        while (capacity < needed) capacity *= 2;
        std::unique_ptr<char[]> bigger(new char[capacity]);
        if (size_) std::memcpy(bigger.get(), data_.get(), size_);
        data_ = std::move(bigger);
        capacity_ = capacity;
    }
    std::unique_ptr<char[]> data_;
    std::size_t size_ = 0;
    std::size_t line_breaks_ = 0;
    std::size_t capacity_ = 0;
};

}  // namespace dftrace
