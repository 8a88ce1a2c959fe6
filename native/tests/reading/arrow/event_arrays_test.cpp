// Columns for others: kept as long as one of them is held, whatever is let go of first.
#include "dftrace/reading/arrow/event_arrays.hpp"

#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"

using namespace dftrace;

namespace {

const std::vector<EventColumn> all_columns{
    EventColumn::file, EventColumn::ph,  EventColumn::cat,      EventColumn::name,   EventColumn::id,
    EventColumn::pid,  EventColumn::tid, EventColumn::start_ns, EventColumn::dur_ns, EventColumn::args};

// A scanner whose blocks are given to others.
struct Reader {
    Budget budget{64 << 20};
    Labels labels{budget};
    Scanner scanner{labels};
    LabelTexts texts{labels, budget};

    ArrowArray give(const std::string& lines, std::uint32_t file = 0) {
        auto block = std::make_shared<ScannedBlock>();
        std::memcpy(block->text.room_for(lines.size()), lines.data(), lines.size());
        block->text.close(lines.size());
        scanner.scan(block->text, block->rows);
        block->pid.resize(block->rows.size);
        block->tid.resize(block->rows.size);
        ArrowArray array;
        give_events(block, texts, file, all_columns, array);
        return array;
    }
};

std::string lines_with(int first, int count) {
    std::string lines;
    for (int number = first; number < first + count; ++number)
        lines += R"({"name":"name )" + std::to_string(number) + R"(","cat":"c)" + std::to_string(number % 2) +
                 R"(","ph":"X","ts":1,"dur":2,"args":{"step":)" + std::to_string(number * 1000003L) + "}}\n";
    return lines;
}

void let_go(ArrowArray& array) {
    if (array.release) array.release(&array);
    CHECK(array.release == nullptr);
}

std::string text_at(const ArrowArray& texts, std::int64_t number) {
    const auto* const places = static_cast<const std::int32_t*>(texts.buffers[1]);
    const auto* const bytes = static_cast<const char*>(texts.buffers[2]);
    return {bytes + places[number], bytes + places[number + 1]};
}

std::string name_at(const ArrowArray& column, std::int64_t row) {
    return text_at(*column.dictionary, static_cast<const std::uint32_t*>(column.buffers[1])[row]);
}

}  // namespace

TEST("names of earlier blocks stand where they are while more come") {
    Reader reader;
    std::vector<ArrowArray> arrays;
    for (int block = 0; block < 60; ++block) arrays.push_back(reader.give(lines_with(block * 50, 50)));
    std::vector<std::thread> threads;
    for (int part = 0; part < 4; ++part)
        threads.emplace_back([&, part] {
            for (std::size_t block = static_cast<std::size_t>(part); block < arrays.size(); block += 4) {
                const ArrowArray& names = *arrays[block].children[3];
                CHECK(names.dictionary->length == static_cast<std::int64_t>(block + 1) * 50);
                for (int row = 0; row < 50; ++row)
                    CHECK(name_at(names, row) ==
                          "name " + std::to_string(static_cast<int>(block) * 50 + row));
                CHECK(arrays[block].children[2]->dictionary->length == 2);
                let_go(arrays[block]);
            }
        });
    for (int block = 60; block < 90; ++block) {
        ArrowArray more = reader.give(lines_with(block * 50, 50));
        let_go(more);
    }
    for (std::thread& thread : threads) thread.join();
}

TEST("more names than there is room for are refused whole") {
    Reader reader;
    ArrowArray first = reader.give(lines_with(0, 5));
    reader.budget.take(60 << 20);
    const auto fill = [&] {
        for (int block = 1; block < 1000; ++block) {
            ArrowArray more = reader.give(lines_with(block * 1000, 1000));
            let_go(more);
        }
    };
    CHECK_THROWS(TooMuch, fill());
    CHECK(name_at(*first.children[3], 4) == "name 4");
    let_go(first);
}
