// What samples of a thread are told as: nodes, of which each is a frame below others, and times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "dftrace/stacks/code_names.hpp"
#include "dftrace/stacks/stack_reader.hpp"
#include "dftrace/stacks/stack_table.hpp"

namespace dftrace {

enum class CodeOwner : unsigned { program = 0, library = 1, standard_library = 2, recorder = 3 };

// A function as it is told: never by an absolute path.
struct CodePlace {
    std::string function;  // without what it is local to
    std::string file;      // below one of the roots; empty where files are not told
    CodeOwner owner = CodeOwner::program;

    // `decode (augment.py:88)`; the line is left out where it is 0.
    std::string shown(int line) const;
};

class CodePlaces {
  public:
    // `roots`: directories, each as a digit, which is its owner, and its path, with line breaks between
    // them.
    CodePlaces(std::string_view roots, bool tells_files);
    CodePlace of(const CodeName& name) const;
    bool tells_files() const noexcept { return tells_files_; }

  private:
    struct Root {
        std::string path;
        CodeOwner owner;
    };
    std::vector<Root> roots_;
    bool tells_files_;
};

// The samples of one thread that are told together, by the names and nodes that a reader has found. A node is
// told once for a number of the profile.
class Profile {
  public:
    static constexpr std::int64_t not_known = -1;

    Profile(const StackReader& stacks, const CodePlaces& places) : stacks_(stacks), places_(places) {}

    // Nodes are told anew from here on, under this number.
    void begin(std::uint64_t id) noexcept;
    std::uint64_t id() const noexcept { return id_; }
    std::size_t nodes() const noexcept { return told_.nodes().size(); }
    // `at_us`: since what times of the trace are relative to. `late`: periods that it stands for beside its
    // own, since the tick came so much later than it was due.
    void add(const StackSample& sample, std::uint64_t at_us, std::uint64_t late);
    void miss(std::uint64_t samples = 1) noexcept { missed_ += samples; }

    std::size_t samples() const noexcept { return samples_; }
    std::uint64_t misses() const noexcept { return missed_; }
    // About so many of text.
    std::size_t bytes() const noexcept { return new_nodes_.size() + deltas_.size() * 4; }
    bool empty() const noexcept { return !samples_ && !missed_; }
    // When its first sample was taken, of all under its number.
    std::uint64_t start_us() const noexcept { return start_us_; }
    // Members of the arguments of a line that tells what was added since the last call.
    // `ready_us`: how long the thread waited for a processor meanwhile.
    std::string chunk(std::int64_t ready_us) const;
    // That line is stored, or cannot be: then its samples count as missed, and nodes have to be told anew.
    void stored() noexcept;
    void lost() noexcept;

  private:
    std::uint32_t node_of(std::uint32_t stack);
    void tell(std::uint32_t number, const StackNode& node);

    const StackReader& stacks_;
    const CodePlaces& places_;
    std::uint64_t id_ = 0;
    StackTable told_;                      // of code that is not the program's without lines
    std::vector<std::uint32_t> of_stack_;  // the number among those by the reader's number
    std::uint64_t start_us_ = 0;
    std::uint64_t last_us_ = 0;
    bool begun_ = false;
    std::string new_nodes_, stacks_text_, deltas_, cpu_, cut_, late_;
    bool some_late_ = false;
    std::size_t samples_ = 0;
    std::uint64_t missed_ = 0;
};

// JSON members that tell where a thread stands: function, file and line of its inner frames, and whether
// there are more below that were not read.
std::string standing_stack(const StackReader& stacks, const CodePlaces& places, std::uint32_t stack,
                           bool cut);

}  // namespace dftrace
