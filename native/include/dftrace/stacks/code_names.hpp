// The names of functions, and which line an instruction is of, by code objects that may be freed at any
// moment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dftrace/stacks/interpreter_layout.h"
#include "dftrace/stacks/own_memory.hpp"

namespace dftrace {

// What is told of a code object; numbered in the order in which they were learnt.
struct CodeName {
    std::string function;  // qualified, in UTF-8, as all texts
    std::string file;
    int first_line;
};

// What says that an address is still that of the same code: addresses are used again within milliseconds.
struct CodeIdentity {
    std::uint64_t type;
    std::uint64_t file;
    std::uint64_t name;
    std::uint64_t line_table;
    std::int64_t name_length;
    std::uint64_t name_hash;
    int first_line;
    bool operator==(const CodeIdentity&) const = default;
};

class CodeNames {
  public:
    explicit CodeNames(const InterpreterLayout& layout) noexcept;

    // How much of a code object and of the text that is its name has to be read to know it again.
    std::size_t head_size() const noexcept { return head_size_; }
    std::size_t text_head_size() const noexcept { return text_head_size_; }
    // Where the name of the code that was at this address stood; 0 for one that is not known.
    std::uint64_t name_of(std::uint64_t address) const noexcept;
    // Its number, where these heads say that it is the code that was there.
    std::optional<std::uint32_t> known(std::uint64_t address, const std::byte* head,
                                       const std::byte* text_head) const noexcept;
    // Its number after it was read anew; nothing where it changes meanwhile, or is no code.
    std::optional<std::uint32_t> learn(OwnMemory& memory, std::uint64_t address);
    // The line of an instruction of the code that is at this address: its first where the table has none.
    int line(std::uint64_t address, std::uint64_t instruction) const noexcept;

    const std::vector<CodeName>& names() const noexcept { return names_; }
    void clear() noexcept;

  private:
    struct Known {
        CodeIdentity identity;
        std::uint32_t number;
        std::vector<std::uint8_t> line_table;
    };

    CodeIdentity identity(const std::byte* head, const std::byte* text_head) const noexcept;
    bool read_identity(OwnMemory& memory, std::uint64_t address, CodeIdentity& into);
    bool read_text(OwnMemory& memory, std::uint64_t address, std::string& into);

    const InterpreterLayout& layout_;
    std::size_t head_size_;
    std::size_t text_head_size_;
    std::unordered_map<std::uint64_t, Known> at_;
    std::vector<CodeName> names_;
};

// The line of a unit of instructions by CPython's table of locations (3.11 and later, Objects/locations.md);
// `first_line` where it has none.
int line_of_unit(const std::vector<std::uint8_t>& table, int first_line, std::int64_t unit) noexcept;

}  // namespace dftrace
