// Reading a code object that another thread may be freeing: twice, and what differs was never there.
#include "dftrace/stacks/code_names.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "dftrace/text/json_string.hpp"

namespace dftrace {

namespace {

constexpr std::int64_t longest_text = 1000;  // characters that are kept
constexpr std::int64_t longest_table = 1 << 20;
constexpr std::size_t word = sizeof(std::uint64_t);
constexpr std::size_t largest_head = 512;

template <typename T>
T value_at(const std::byte* from, std::size_t offset) noexcept {
    T value;
    std::memcpy(&value, from + offset, sizeof value);
    return value;
}

// Reads the numbers of a table of locations: six bits a byte, the lowest first.
class LocationBytes {
  public:
    explicit LocationBytes(const std::vector<std::uint8_t>& table) noexcept : table_(table) {}

    bool at_end() const noexcept { return at_ >= table_.size(); }
    std::uint8_t byte() noexcept { return at_end() ? std::uint8_t{} : table_[at_++]; }
    unsigned number() noexcept {
        unsigned value = 0;
        for (unsigned shift = 0; shift < 30 && !at_end(); shift += 6) {
            const unsigned next = byte();
            value |= (next & 0x3f) << shift;
            if (!(next & 0x40)) break;
        }
        return value;
    }
    int signed_number() noexcept {
        const unsigned value = number();
        return value & 1 ? -static_cast<int>(value >> 1) : static_cast<int>(value >> 1);
    }
    void skip(std::size_t bytes) noexcept { at_ += bytes; }

  private:
    const std::vector<std::uint8_t>& table_;
    std::size_t at_ = 0;
};

}  // namespace

int line_of_unit(const std::vector<std::uint8_t>& table, int first_line, std::int64_t unit) noexcept {
    constexpr unsigned one_line = 10, no_columns = 13, whole = 14, none = 15;
    LocationBytes bytes(table);
    int line = first_line;
    for (std::int64_t after = 0; unit >= 0 && !bytes.at_end();) {
        const unsigned first = bytes.byte();
        const unsigned form = first >> 3 & 15;
        after += (first & 7) + 1;
        if (form < one_line) {
            bytes.skip(1);
        } else if (form < no_columns) {
            line += static_cast<int>(form - one_line);
            bytes.skip(2);
        } else if (form == no_columns) {
            line += bytes.signed_number();
        } else if (form == whole) {
            line += bytes.signed_number();
            for (int i = 0; i < 3; ++i) bytes.number();
        }
        if (unit < after) return form == none ? first_line : line;
    }
    return first_line;
}

CodeNames::CodeNames(const InterpreterLayout& layout) noexcept
    : layout_(layout),
      head_size_(std::min(largest_head, std::max({layout.type, layout.code.first_line, layout.code.file,
                                                  layout.code.qualified_name, layout.code.line_table}) +
                                            word)),
      text_head_size_(std::max(layout.text.length, layout.text.hash) + word) {}

void CodeNames::clear() noexcept {
    at_.clear();
    names_.clear();
}

std::uint64_t CodeNames::name_of(std::uint64_t address) const noexcept {
    const auto found = at_.find(address);
    return found == at_.end() ? 0 : found->second.identity.name;
}

CodeIdentity CodeNames::identity(const std::byte* head, const std::byte* text_head) const noexcept {
    return {
        .type = value_at<std::uint64_t>(head, layout_.type),
        .file = value_at<std::uint64_t>(head, layout_.code.file),
        .name = value_at<std::uint64_t>(head, layout_.code.qualified_name),
        .line_table = value_at<std::uint64_t>(head, layout_.code.line_table),
        .name_length = value_at<std::int64_t>(text_head, layout_.text.length),
        .name_hash = value_at<std::uint64_t>(text_head, layout_.text.hash),
        .first_line = value_at<int>(head, layout_.code.first_line),
    };
}

std::optional<std::uint32_t> CodeNames::known(std::uint64_t address, const std::byte* head,
                                              const std::byte* text_head) const noexcept {
    const auto found = at_.find(address);
    if (found == at_.end() || !(found->second.identity == identity(head, text_head))) return std::nullopt;
    return found->second.number;
}

bool CodeNames::read_identity(OwnMemory& memory, std::uint64_t address, CodeIdentity& into) {
    std::array<std::byte, largest_head> head;
    std::array<std::byte, 64> text_head;
    if (!memory.read(head.data(), address, head_size_)) return false;
    const auto name = value_at<std::uint64_t>(head.data(), layout_.code.qualified_name);
    if (!memory.read(text_head.data(), name, text_head_size_)) return false;
    into = identity(head.data(), text_head.data());
    return into.type == layout_.code_type;
}

bool CodeNames::read_text(OwnMemory& memory, std::uint64_t address, std::string& into) {
    std::array<std::byte, 128> head;
    if (!memory.read(head.data(), address, layout_.text.ascii_text)) return false;
    const auto length = value_at<std::int64_t>(head.data(), layout_.text.length);
    const auto state = value_at<std::uint32_t>(head.data(), layout_.text.state) >> layout_.text.kind_shift;
    const std::size_t width = state & 7;
    const bool compact = state >> 3 & 1;
    const bool ascii = state >> 4 & 1;
    if (value_at<std::uint64_t>(head.data(), layout_.type) != layout_.text_type || length < 0 || !compact ||
        (width != 1 && width != 2 && width != 4))
        return false;
    const auto count = static_cast<std::size_t>(std::min(length, longest_text));
    std::vector<std::byte> raw(count * width);
    const std::size_t offset = ascii ? layout_.text.ascii_text : layout_.text.other_text;
    if (count && !memory.read(raw.data(), address + offset, raw.size())) return false;
    into.clear();
    for (std::size_t i = 0; i < count; ++i) {
        std::uint32_t character = 0;
        std::memcpy(&character, raw.data() + i * width, width);
        const bool is_one = character < 0xd800 || (character > 0xdfff && character <= 0x10ffff);
        append_utf8(into, is_one ? character : 0xfffd);
    }
    return true;
}

std::optional<std::uint32_t> CodeNames::learn(OwnMemory& memory, std::uint64_t address) {
    CodeIdentity first, again;
    CodeName name;
    std::int64_t size = 0;
    if (!read_identity(memory, address, first) ||
        !memory.read(size, first.line_table + layout_.bytes.length) || size < 0 || size > longest_table)
        return std::nullopt;
    std::vector<std::uint8_t> table(static_cast<std::size_t>(size));
    if (!read_text(memory, first.name, name.function) || !read_text(memory, first.file, name.file) ||
        (size && !memory.read(table.data(), first.line_table + layout_.bytes.data, table.size())) ||
        !read_identity(memory, address, again) || !(first == again))
        return std::nullopt;
    name.first_line = first.first_line;
    const auto number = static_cast<std::uint32_t>(names_.size());
    names_.push_back(std::move(name));
    at_.insert_or_assign(address, Known{first, number, std::move(table)});
    return number;
}

int CodeNames::line(std::uint64_t address, std::uint64_t instruction) const noexcept {
    const Known& code = at_.at(address);
    const auto bytes = static_cast<std::int64_t>(instruction - (address + layout_.code.instructions));
    return line_of_unit(code.line_table, code.identity.first_line, bytes < 0 ? -1 : bytes / 2);
}

}  // namespace dftrace
