// The names of traces as Arrow lays texts out, in memory that others may look at while more are added.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dftrace/index/budget.hpp"
#include "dftrace/reading/traces/labels.hpp"

namespace dftrace {

// Texts by number: each ends where the next begins.
struct TextsSoFar {
    std::shared_ptr<const std::int32_t[]> places;  // count + 1, from 0 on
    std::shared_ptr<const char[]> bytes;
    std::size_t count = 0;
};

// Each text once. What was told of it stands where it is, and so memory does not grow with how often it is
// asked.
class TextList {
  public:
    explicit TextList(Budget& budget) : budget_(budget) {}
    // The text has to stand where it is.
    std::uint32_t number(std::string_view text);
    const TextsSoFar& so_far();

  private:
    void make_room(std::size_t texts, std::size_t bytes);

    Budget& budget_;
    std::unordered_map<std::string_view, std::uint32_t> numbers_;
    std::shared_ptr<std::int32_t[]> places_;
    std::shared_ptr<char[]> bytes_;
    std::size_t room_texts_ = 0, room_bytes_ = 0;
    TextsSoFar so_far_;
};

// Of each label the number of its category among all categories, and of its name among all names. A label is
// both, so that the same category is in many of them, and who groups by such a column would get it as often.
class LabelTexts {
  public:
    LabelTexts(const Labels& labels, Budget& budget) : labels_(labels), categories_(budget), names_(budget) {}

    struct Column {
        std::vector<std::uint32_t> numbers;
        TextsSoFar texts;
    };
    // Those of rows by their labels.
    Column categories(const std::uint32_t* labels, std::size_t rows);
    Column names(const std::uint32_t* labels, std::size_t rows);

  private:
    void follow();

    const Labels& labels_;
    std::mutex lock_;
    TextList categories_, names_;
    std::vector<std::uint32_t> category_, name_;  // by label
};

}  // namespace dftrace
