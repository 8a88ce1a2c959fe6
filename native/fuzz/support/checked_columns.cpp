// Columns read as another program would: by their formats, and by nothing that is known of how they are made.
#include "checked_columns.hpp"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "checked_line.hpp"
#include "dftrace/reading/arrow/event_arrays.hpp"
#include "dftrace/reading/traces/general_line.hpp"
#include "json_reader.hpp"

using namespace dftrace;

namespace {

constexpr std::size_t most_bytes = 64u << 20;
constexpr std::uint32_t file_number = 7;

using Columns = std::vector<EventColumn>;

const Columns all_columns{EventColumn::args,     EventColumn::file,   EventColumn::ph,  EventColumn::cat,
                          EventColumn::name,     EventColumn::id,     EventColumn::pid, EventColumn::tid,
                          EventColumn::start_ns, EventColumn::dur_ns, EventColumn::name};

// An event as the columns tell of it.
struct Told {
    std::string ph, category, name, args;
    std::uint64_t id = 0;
    std::int64_t pid = 0, tid = 0, start = 0, duration = 0, file = 0;
};

void require(bool well, const char* what, std::string_view text) {
    if (!well) fail(what, text);
}

template <typename Value>
Value value_at(const void* buffer, std::int64_t row) {
    Value value;
    std::memcpy(&value, static_cast<const char*>(buffer) + row * static_cast<std::int64_t>(sizeof value),
                sizeof value);
    return value;
}

// Texts of the format "u": offsets, and bytes between them.
std::vector<std::string> texts_of(const ArrowArray& array, std::string_view text) {
    require(array.n_buffers == 3 && array.n_children == 0 && !array.dictionary, "no texts", text);
    std::vector<std::string> found;
    std::int32_t before = value_at<std::int32_t>(array.buffers[1], 0);
    require(before == 0, "texts that do not begin at 0", text);
    for (std::int64_t number = 0; number < array.length; ++number) {
        const auto end = value_at<std::int32_t>(array.buffers[1], number + 1);
        require(end >= before, "an offset that goes back", text);
        found.emplace_back(static_cast<const char*>(array.buffers[2]) + before,
                           static_cast<std::size_t>(end - before));
        require(is_utf8(found.back()), "a text that is not UTF-8", text);
        before = end;
    }
    return found;
}

// A view of the format "vu": a short text stands in it, a long one in one of the buffers behind the views.
std::string view_at(const ArrowArray& array, std::int64_t row, std::string_view text) {
    const char* const view = static_cast<const char*>(array.buffers[1]) + 16 * row;
    const auto bytes = value_at<std::int32_t>(view, 0);
    require(bytes >= 0, "a text of less than nothing", text);
    if (bytes <= 12) {
        for (std::int32_t at = bytes; at < 12; ++at) require(view[4 + at] == 0, "a pad that is not 0", text);
        return {view + 4, static_cast<std::size_t>(bytes)};
    }
    const auto buffer = value_at<std::int32_t>(view, 2), place = value_at<std::int32_t>(view, 3);
    const std::int64_t buffers = array.n_buffers - 3;
    require(buffer >= 0 && buffer < buffers, "a view of a buffer that is not there", text);
    const auto room = value_at<std::int64_t>(array.buffers[array.n_buffers - 1], buffer);
    require(place >= 0 && std::int64_t{place} + bytes <= room, "a view beyond its buffer", text);
    std::string found(static_cast<const char*>(array.buffers[2 + buffer]) + place,
                      static_cast<std::size_t>(bytes));
    require(found.compare(0, 4, view + 4, 4) == 0, "another beginning than that of the text", text);
    return found;
}

// What a column is good for, by its name and format.
void read_column(const ArrowSchema& schema, const ArrowArray& array, std::vector<Told>& told,
                 std::string_view text) {
    const std::string_view name = schema.name, format = schema.format;
    require(array.length == static_cast<std::int64_t>(told.size()) && array.offset == 0 &&
                array.null_count == 0 && array.buffers[0] == nullptr && array.n_children == 0,
            "a column of another form", text);
    require(!schema.dictionary == !array.dictionary, "a dictionary on one side", text);
    require(array.n_buffers == (format == "vu" ? 4 : 2), "another number of buffers", text);
    std::vector<std::string> texts;
    if (array.dictionary) {
        require(std::string_view(schema.dictionary->format) == "u", "a dictionary of no texts", text);
        texts = texts_of(*array.dictionary, text);
    }
    for (std::int64_t row = 0; row < array.length; ++row) {
        Told& event = told[static_cast<std::size_t>(row)];
        if (format == "vu") {
            event.args = view_at(array, row, text);
        } else if (array.dictionary) {
            const std::uint64_t number = format == "C" ? value_at<std::uint8_t>(array.buffers[1], row)
                                                       : value_at<std::uint32_t>(array.buffers[1], row);
            require(number < texts.size(), "a number without a text", text);
            (name == "ph" ? event.ph : name == "cat" ? event.category : event.name) = texts[number];
        } else if (format == "I") {
            event.file = value_at<std::uint32_t>(array.buffers[1], row);
        } else if (format == "L") {
            event.id = value_at<std::uint64_t>(array.buffers[1], row);
        } else {
            require(format == "l", "a format that is not known", text);
            (name == "pid"        ? event.pid
             : name == "tid"      ? event.tid
             : name == "start_ns" ? event.start
                                  : event.duration) = value_at<std::int64_t>(array.buffers[1], row);
        }
    }
}

// Takes each column away from the others, as whoever imports them does, and lets go of the last one first.
std::vector<Told> read_away(ArrowArray array, std::string_view text) {
    ArrowSchema schema;
    describe_events(all_columns, schema);
    require(std::string_view(schema.format) == "+s" && array.n_children == schema.n_children &&
                array.n_buffers == 1 && !array.buffers[0] && !array.dictionary,
            "no structure of columns", text);
    std::vector<ArrowArray> columns;
    for (std::int64_t number = 0; number < array.n_children; ++number)
        columns.push_back(std::exchange(*array.children[number], ArrowArray{}));
    std::vector<Told> told(static_cast<std::size_t>(array.length));
    array.release(&array);
    for (; !columns.empty(); columns.pop_back()) {
        read_column(*schema.children[columns.size() - 1], columns.back(), told, text);
        columns.back().release(&columns.back());
        require(!columns.back().release, "a column that is not released", text);
    }
    schema.release(&schema);
    return told;
}

struct Scanned {
    std::string_view text;
    ArrowArray array;
};

void require_events(const Scanned& scanned) {
    const std::string_view text = scanned.text;
    const std::vector<Told> told = read_away(scanned.array, text);
    std::size_t row = 0;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = text.find('\n', at);
        const GeneralLine event = read_general_line(text.substr(at, end - at));
        at = end + 1;
        if (event.kind != GeneralLine::Kind::event) continue;
        require(row < told.size(), "an event without a row", text);
        const Told& found = told[row++];
        const bool numbered = event.ph.size() == 1 && event.ph[0] >= '1' && event.ph[0] <= '4';
        const std::string ph =
            numbered ? std::string(1, numbered_phases[static_cast<std::size_t>(event.ph[0] - '1')])
                     : event.ph;
        const std::string args = event.args.data() ? "{" + std::string(event.args) + "}" : "";
        require(found.ph == ph, "another phase", text);
        require(found.category == event.category && found.name == event.name, "another name", text);
        require(found.id == event.id && found.pid == event.pid && found.tid == event.tid, "other numbers",
                text);
        require(found.start == (event.start == no_time ? -1 : event.start), "another start", text);
        require(found.duration == (event.ph == "X" ? event.duration : -1), "another duration", text);
        require(found.args == args && is_utf8(found.args), "other arguments", text);
        require(found.file == file_number, "another file", text);
    }
    require(row == told.size(), "a row without an event", text);
}

}  // namespace

void require_columns(std::string_view text) {
    std::vector<Scanned> blocks;
    {
        Budget budget(most_bytes);
        Labels labels(budget);
        Scanner scanner(labels);
        LabelTexts texts(labels, budget);
        const std::size_t middle = text.find('\n', text.size() / 2) + 1;
        for (const std::string_view lines : {text.substr(0, middle), text.substr(middle)}) {
            const auto block = std::make_shared<ScannedBlock>();
            // As much room as the text and its pad need, so that a byte read behind them is seen.
            std::memcpy(block->text.room_for(lines.size()), lines.data(), lines.size());
            block->text.close(lines.size());
            Rows& rows = block->rows;
            scanner.scan(block->text, rows);
            for (std::size_t row = 0; row < rows.size; ++row) {
                const TrackId track = labels.track_id(rows.track[row]);
                block->pid.push_back(track.pid);
                block->tid.push_back(track.tid);
                if (rows.start[row] == no_time) rows.start[row] = -1;
            }
            blocks.push_back({lines, {}});
            give_events(block, texts, file_number, all_columns, blocks.back().array);
        }
    }
    // Who reads them may do so when what has scanned them is long gone.
    for (const Scanned& scanned : blocks) require_events(scanned);
}
