// Columns of a block in the structures of Arrow's.
#include "dftrace/reading/arrow/event_arrays.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "dftrace/reading/traces/general_line.hpp"

namespace dftrace {

namespace {

struct Layout {
    EventColumn column;
    const char* name;
    const char* format;
    bool of_texts = false;  // numbers of texts, which stand beside them
};

constexpr std::array<Layout, 11> layouts{{{EventColumn::file, "file", "I"},
                                          {EventColumn::ph, "ph", "C", true},
                                          {EventColumn::cat, "cat", "I", true},
                                          {EventColumn::name, "name", "I", true},
                                          {EventColumn::id, "id", "L"},
                                          {EventColumn::pid, "pid", "l"},
                                          {EventColumn::tid, "tid", "l"},
                                          {EventColumn::start_ns, "start_ns", "l"},
                                          {EventColumn::dur_ns, "dur_ns", "l"},
                                          // A view of each row's text, in the text of the block.
                                          {EventColumn::args, "args", "vu"},
                                          {EventColumn::parent, "parent", "L"}}};

const Layout& layout_of(EventColumn column) noexcept { return layouts[static_cast<std::size_t>(column)]; }

template <typename Struct>
void release_if_there(Struct* one) {
    if (one && one->release) one->release(one);
}

// What is behind a structure that was handed out. Who has moved a child away has left one that is released.
template <typename Struct>
struct Owned {
    std::vector<std::shared_ptr<const void>> kept;
    std::vector<const void*> buffers;
    std::vector<Struct> children;
    std::vector<Struct*> places;
    Struct dictionary{};

    Owned() = default;
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
        for (Struct& child : children) release_if_there(&child);
        release_if_there(&dictionary);
    }
    void have_children(std::size_t count) {
        children.resize(count);
        for (Struct& child : children) places.push_back(&child);
    }
};

template <typename Struct>
void release(Struct* one) {
    delete static_cast<Owned<Struct>*>(one->private_data);
    one->release = nullptr;
}

template <typename Struct>
void hand_out(std::unique_ptr<Owned<Struct>> owned, Struct& out) noexcept {
    out.n_children = static_cast<std::int64_t>(owned->children.size());
    out.children = owned->places.empty() ? nullptr : owned->places.data();
    out.dictionary = owned->dictionary.release ? &owned->dictionary : nullptr;
    out.release = release<Struct>;
    out.private_data = owned.release();
}

void describe(const char* name, const char* format, std::unique_ptr<Owned<ArrowSchema>> owned,
              ArrowSchema& out) {
    out = {};
    out.name = name;
    out.format = format;
    hand_out(std::move(owned), out);
}

using OwnedArray = std::unique_ptr<Owned<ArrowArray>>;

void give(std::size_t length, OwnedArray owned, ArrowArray& out) noexcept {
    out = {};
    out.length = static_cast<std::int64_t>(length);
    out.n_buffers = static_cast<std::int64_t>(owned->buffers.size());
    out.buffers = owned->buffers.data();
    hand_out(std::move(owned), out);
}

// No column has nulls, so that none has the bits that would tell of them.
OwnedArray owning(const void* values, std::shared_ptr<const void> keeper) {
    auto owned = std::make_unique<Owned<ArrowArray>>();
    owned->buffers = {nullptr, values};
    owned->kept.push_back(std::move(keeper));
    return owned;
}

template <typename Value>
OwnedArray owning(std::vector<Value> values) {
    auto held = std::make_shared<const std::vector<Value>>(std::move(values));
    const void* const at = held->data();
    return owning(at, std::move(held));
}

void give_texts(const TextsSoFar& texts, ArrowArray& out) {
    OwnedArray owned = owning(texts.places.get(), texts.places);
    owned->buffers.push_back(texts.bytes.get());
    owned->kept.push_back(texts.bytes);
    give(texts.count, std::move(owned), out);
}

constexpr std::size_t letters = 128;

// A letter is its own number. The texts behind them are phases of several letters.
TextsSoFar phase_texts(const std::vector<std::string>& more) {
    std::size_t bytes = letters;
    for (const std::string& text : more) bytes += text.size();
    const std::shared_ptr<std::int32_t[]> places_owner(new std::int32_t[letters + more.size() + 1]);
    const std::shared_ptr<char[]> held_owner(new char[bytes]);
    std::int32_t* const places = places_owner.get();
    char* const held = held_owner.get();
    std::size_t at = 0;
    places[0] = 0;
    for (; at < letters; ++at) {
        held[at] = static_cast<char>(at);
        places[at + 1] = static_cast<std::int32_t>(at + 1);
    }
    for (std::size_t number = 0; number < more.size(); ++number) {
        std::memcpy(held + at, more[number].data(), more[number].size());
        at += more[number].size();
        places[letters + number + 1] = static_cast<std::int32_t>(at);
    }
    return {places_owner, held_owner, letters + more.size()};
}

OwnedArray phases(const std::shared_ptr<const ScannedBlock>& block) {
    static const TextsSoFar all_letters = phase_texts({});
    const Rows& rows = block->rows;
    const auto numbered = [](std::uint8_t ph) { return ph >= '1' && ph < '1' + numbered_phases.size(); };
    const auto begin = rows.ph.begin(), end = begin + static_cast<std::ptrdiff_t>(rows.size);
    if (rows.phases.empty() && std::none_of(begin, end, numbered)) {
        OwnedArray owned = owning(rows.ph.data(), block);
        give_texts(all_letters, owned->dictionary);
        return owned;
    }
    std::vector<std::uint8_t> numbers(begin, end);
    for (std::uint8_t& number : numbers)
        if (numbered(number)) number = static_cast<std::uint8_t>(numbered_phases[number - '1']);
    std::vector<std::string> more;
    for (const auto& [row, text] : rows.phases) {
        auto found = std::find(more.begin(), more.end(), text);
        // No writer has so many; what would not fit is no phase that anybody knows.
        const bool full = found == more.end() && more.size() == letters;
        if (found == more.end() && !full) found = more.insert(more.end(), text);
        numbers[row] =
            full ? std::uint8_t{'?'}
                 : static_cast<std::uint8_t>(letters + static_cast<std::size_t>(found - more.begin()));
    }
    OwnedArray owned = owning(std::move(numbers));
    give_texts(phase_texts(more), owned->dictionary);
    return owned;
}

// Where a text is: short ones stand here themselves, of others the first four bytes.
struct TextView {
    std::int32_t bytes = 0;
    std::array<char, 12> inside{};
};

struct ArgumentViews {
    std::vector<TextView> views;
    std::int64_t text_bytes = 0;
};

OwnedArray arguments(const std::shared_ptr<const ScannedBlock>& block) {
    const Rows& rows = block->rows;
    auto held = std::make_shared<ArgumentViews>();
    held->views.resize(rows.size);
    held->text_bytes = static_cast<std::int64_t>(block->text.size());
    for (std::size_t row = 0; row < rows.size; ++row) {
        if (rows.args_at[row] == 0) continue;
        TextView& view = held->views[row];
        // The braces stand around the members.
        const std::uint32_t at = rows.args_at[row] - 1;
        const std::uint32_t bytes = rows.args_bytes[row] + 2;
        view.bytes = static_cast<std::int32_t>(bytes);
        const char* const text = block->text.data() + at;
        if (bytes <= view.inside.size()) {
            std::memcpy(view.inside.data(), text, bytes);
        } else {
            // The number of the buffer behind the first bytes is 0.
            std::memcpy(view.inside.data(), text, 4);
            std::memcpy(view.inside.data() + 8, &at, 4);
        }
    }
    OwnedArray owned = owning(held->views.data(), held);
    owned->buffers.push_back(block->text.data());
    owned->buffers.push_back(&held->text_bytes);
    owned->kept.push_back(block);
    return owned;
}

OwnedArray texts_by_number(LabelTexts::Column column) {
    OwnedArray owned = owning(std::move(column.numbers));
    give_texts(column.texts, owned->dictionary);
    return owned;
}

OwnedArray column_of(EventColumn column, const std::shared_ptr<const ScannedBlock>& block, LabelTexts& texts,
                     std::uint32_t file) {
    const Rows& rows = block->rows;
    switch (column) {
        case EventColumn::file: return owning(std::vector<std::uint32_t>(rows.size, file));
        case EventColumn::ph: return phases(block);
        case EventColumn::cat: return texts_by_number(texts.categories(rows.label.data(), rows.size));
        case EventColumn::name: return texts_by_number(texts.names(rows.label.data(), rows.size));
        case EventColumn::id: return owning(rows.id.data(), block);
        case EventColumn::pid: return owning(block->pid.data(), block);
        case EventColumn::tid: return owning(block->tid.data(), block);
        case EventColumn::start_ns: return owning(rows.start.data(), block);
        case EventColumn::dur_ns: return owning(rows.duration.data(), block);
        case EventColumn::parent: return owning(rows.parent.data(), block);
        case EventColumn::args: break;
    }
    return arguments(block);
}

}  // namespace

std::optional<EventColumn> event_column(std::string_view name) noexcept {
    for (const Layout& layout : layouts)
        if (name == layout.name) return layout.column;
    return std::nullopt;
}

void describe_events(const std::vector<EventColumn>& columns, ArrowSchema& out) {
    auto all = std::make_unique<Owned<ArrowSchema>>();
    all->have_children(columns.size());
    for (std::size_t number = 0; number < columns.size(); ++number) {
        const Layout& layout = layout_of(columns[number]);
        auto one = std::make_unique<Owned<ArrowSchema>>();
        if (layout.of_texts) describe("", "u", std::make_unique<Owned<ArrowSchema>>(), one->dictionary);
        describe(layout.name, layout.format, std::move(one), all->children[number]);
    }
    describe("", "+s", std::move(all), out);
}

void give_events(const std::shared_ptr<const ScannedBlock>& block, LabelTexts& texts, std::uint32_t file,
                 const std::vector<EventColumn>& columns, ArrowArray& out) {
    auto all = std::make_unique<Owned<ArrowArray>>();
    all->buffers = {nullptr};
    all->have_children(columns.size());
    for (std::size_t number = 0; number < columns.size(); ++number)
        give(block->rows.size, column_of(columns[number], block, texts, file), all->children[number]);
    give(block->rows.size, std::move(all), out);
}

}  // namespace dftrace
