// Texts that are laid out as they come.
#include "dftrace/reading/arrow/label_texts.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

namespace dftrace {

namespace {

// What an entry of the dictionary takes beside its text.
constexpr std::size_t entry_bytes = 64;
constexpr std::size_t most_bytes = std::numeric_limits<std::int32_t>::max();

template <typename Value>
std::shared_ptr<Value[]> longer(const std::shared_ptr<Value[]>& before, std::size_t used, std::size_t room) {
    std::shared_ptr<Value[]> made(new Value[room]);
    if (used) std::memcpy(made.get(), before.get(), used * sizeof(Value));
    return made;
}

LabelTexts::Column column_of(const std::vector<std::uint32_t>& by_label, const TextsSoFar& texts,
                             const std::uint32_t* labels, std::size_t rows) {
    LabelTexts::Column column{std::vector<std::uint32_t>(rows), texts};
    for (std::size_t row = 0; row < rows; ++row) column.numbers[row] = by_label[labels[row]];
    return column;
}

}  // namespace

void TextList::make_room(std::size_t texts, std::size_t bytes) {
    if (bytes > most_bytes) throw TooMuch();
    if (texts + 1 > room_texts_) {
        const std::size_t room = std::max<std::size_t>(texts + 1, 2 * room_texts_ + 64);
        budget_.take((room - room_texts_) * sizeof(std::int32_t));
        places_ = longer(places_, room_texts_ ? so_far_.count + 1 : 0, room);
        if (!room_texts_) places_[0] = 0;
        room_texts_ = room;
    }
    if (bytes > room_bytes_) {
        const std::size_t used = so_far_.count ? static_cast<std::size_t>(places_[so_far_.count]) : 0;
        const std::size_t room = std::max<std::size_t>(bytes, 2 * room_bytes_ + 1024);
        budget_.take(room - room_bytes_);
        bytes_ = longer(bytes_, used, room);
        room_bytes_ = room;
    }
}

std::uint32_t TextList::number(std::string_view text) {
    if (const auto found = numbers_.find(text); found != numbers_.end()) return found->second;
    const std::size_t count = so_far_.count;
    const std::size_t used = count ? static_cast<std::size_t>(places_[count]) : 0;
    make_room(count + 1, used + text.size());
    budget_.take(entry_bytes);
    const auto number = static_cast<std::uint32_t>(count);
    numbers_.emplace(text, number);
    if (!text.empty()) std::memcpy(bytes_.get() + used, text.data(), text.size());
    places_[count + 1] = static_cast<std::int32_t>(used + text.size());
    so_far_ = {places_, bytes_, count + 1};
    return number;
}

const TextsSoFar& TextList::so_far() {
    if (!so_far_.places) {
        make_room(0, 1);
        so_far_ = {places_, bytes_, 0};
    }
    return so_far_;
}

void LabelTexts::follow() {
    for (std::size_t number = name_.size(), all = labels_.size(); number < all; ++number) {
        const Label& label = labels_[static_cast<std::uint32_t>(number)];
        // Also where there was no memory for the name the last time.
        category_.resize(number);
        category_.push_back(categories_.number(label.category));
        name_.push_back(names_.number(label.name));
    }
}

LabelTexts::Column LabelTexts::categories(const std::uint32_t* labels, std::size_t rows) {
    const std::lock_guard guard(lock_);
    follow();
    return column_of(category_, categories_.so_far(), labels, rows);
}

LabelTexts::Column LabelTexts::names(const std::uint32_t* labels, std::size_t rows) {
    const std::lock_guard guard(lock_);
    follow();
    return column_of(name_, names_.so_far(), labels, rows);
}

}  // namespace dftrace
