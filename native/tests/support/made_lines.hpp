// Lines of made-up kinds: a number says what their arguments are, in which order their names come, and where
// in a file they change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace made {

using Random = std::mt19937_64;

// Spans with arguments of some kinds: counters, numbers, hashes, file names that come back, free text.
class Kind {
  public:
    explicit Kind(std::uint64_t seed);
    void append_line(std::string& text, Random& random, std::uint64_t id, std::uint64_t ns);
    const std::string& told() const noexcept { return told_; }

  private:
    using Value = std::function<void(std::string&, Random&, std::uint64_t)>;
    Value value(Random& random);
    Value recurring(Random& random);
    Value words(Random& random);

    std::vector<std::string> names_;
    bool in_turn_;
    std::uint64_t threads_;
    std::vector<std::pair<std::string, Value>> arguments_;
    std::vector<unsigned> used_by_;  // an argument is on every so manieth name
    std::string told_;
};

// A file of them: of one kind, or of several that follow each other or alternate.
class Lines {
  public:
    explicit Lines(std::uint64_t seed);
    // Whole lines, so many bytes and the rest of the last line.
    std::string next(std::size_t bytes);
    // Of which kinds, for who reads of a failure.
    std::string told() const;

  private:
    Random random_;
    std::vector<Kind> kinds_;
    std::uint64_t id_ = 0, ns_ = 7'000'000'000'000, left_ = 0, run_;
    std::size_t kind_ = 0;
};

}  // namespace made
