// A column that grows, in the narrowest whole numbers of some forms that hold it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

namespace dftrace {

class NarrowColumn {
  public:
    enum class Form : std::uint8_t { u8, u16, u32, u64, i32, i64 };
    struct Free {
        void operator()(void* bytes) const noexcept { std::free(bytes); }
    };
    using Bytes = std::unique_ptr<char, Free>;

    // From narrow to wide; the last form holds all that comes.
    explicit NarrowColumn(std::span<const Form> forms) : forms_(forms.begin(), forms.end()) {}

    // Rows, of which each lies so many numbers behind the one before.
    template <typename Number>
    void add(const Number* values, std::size_t rows, std::size_t stride = 1);
    // Lets go of all rows but the first ones.
    void cut(std::size_t rows) noexcept { rows_ = rows < rows_ ? rows : rows_; }

    std::size_t rows() const noexcept { return rows_; }
    Form form() const noexcept { return forms_.front(); }
    // What all rows have; such a column has one value in memory.
    bool is_same() const noexcept { return !bytes_; }
    std::int64_t same() const noexcept { return same_; }
    const char* data() const noexcept { return bytes_.get(); }
    // The values, without the column that they were in.
    Bytes take();
    // How many rows, which rise, are less.
    std::size_t below(std::int64_t bound) const;

    static std::size_t width_of(Form form) noexcept;

  private:
    template <typename Number>
    void append(const Number* values, std::size_t rows, std::size_t stride);
    template <typename To, typename Number>
    void put(const Number* values, std::size_t rows, std::size_t stride) noexcept;
    void widen();
    void make_room(std::size_t rows);

    std::vector<Form> forms_;
    Bytes bytes_;
    std::size_t rows_ = 0, room_ = 0;  // room in rows
    std::int64_t same_ = 0;            // of the first row, its bits
};

}  // namespace dftrace
