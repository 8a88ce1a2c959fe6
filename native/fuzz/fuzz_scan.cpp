// Lines of a trace, by the layout of the recorder and by the general reader of JSON, which share nothing; and
// as columns for other programs.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "checked_columns.hpp"
#include "checked_line.hpp"
#include "dftrace/reading/traces/argument_columns.hpp"
#include "dftrace/reading/traces/checking.hpp"
#include "dftrace/reading/traces/general_line.hpp"
#include "dftrace/reading/traces/totals.hpp"

using namespace dftrace;

namespace {

constexpr std::size_t most_bytes = 64u << 20;

// As much room as the text and its pad need, so that a byte read behind them is seen.
void put(PlainText& text, std::string_view lines) {
    std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
    text.close(lines.size());
}

void require_row(const Labels& labels, const Rows& rows, std::size_t row, const GeneralLine& event,
                 std::string_view text) {
    const auto same = [&](const char* what, bool well) {
        if (!well) fail(what, text);
    };
    const bool letter = event.ph.size() == 1 && event.ph[0] != '\0';
    same("another phase", rows.ph[row] == (letter ? static_cast<std::uint8_t>(event.ph[0]) : 0));
    same("another name", labels[rows.label[row]].name == event.name);
    same("another category", labels[rows.label[row]].category == event.category);
    same("another track", labels.track_id(rows.track[row]) == TrackId{event.pid, event.tid});
    same("another id", rows.id[row] == event.id);
    same("another parent", rows.parent[row] == event.parent);
    same("another start", rows.start[row] == event.start);
    same("another duration", rows.duration[row] == (event.ph == "X" ? event.duration : -1));
    same("other arguments", text.substr(rows.args_at[row], rows.args_bytes[row]) == event.args);
}

// Whole numbers of arguments by the walk of all members are those that are looked for one by one.
void require_members(const Labels& labels, const Rows& rows, std::string_view text) {
    const std::vector<std::uint8_t> all(labels.size(), 1);
    Budget budget(most_bytes);
    ArgumentColumns found({{"step", WantedMember::Form::whole},
                           {"p_idx", WantedMember::Form::whole},
                           {"late_us", WantedMember::Form::micros},
                           {"name", WantedMember::Form::text}},
                          0, budget);
    found.take(rows, rows.ph, text, all);
    if (found.rows().size() != rows.size) fail("a row was passed over", text);
    for (std::size_t row = 0; row < rows.size; ++row) {
        const std::size_t at = rows.args_at[row];
        const std::string_view args =
            at ? text.substr(at - 1, std::size_t{rows.args_bytes[row]} + 2) : std::string_view("{}");
        const std::int64_t* const values = &found.values()[row * found.wanted().size()];
        if (values[0] != whole_member(args, "\"step\"").value_or(no_time) ||
            values[1] != whole_member(args, "\"p_idx\"").value_or(no_time))
            fail("another number in arguments", text);
        if (values[3] != no_time && static_cast<std::size_t>(values[3]) >= found.texts().size())
            fail("a text that is not there", text);
    }
}

void require_rows(std::string_view text) {
    Budget budget(most_bytes);
    Labels labels(budget);
    Scanner scanner(labels);
    PlainText plain;
    put(plain, text);
    Rows rows;
    scanner.scan(plain, rows);
    std::size_t row = 0, unreadable = 0, lines = 0;
    for (std::size_t at = 0; at < text.size(); ++lines) {
        const std::size_t end = text.find('\n', at);
        const GeneralLine event = read_general_line(text.substr(at, end - at));
        unreadable += event.kind == GeneralLine::Kind::unreadable;
        if (event.kind == GeneralLine::Kind::event) {
            if (row >= rows.size) fail("an event was passed over", text);
            require_row(labels, rows, row++, event, text);
        }
        at = end + 1;
    }
    require_members(labels, rows, plain.view());
    if (row != rows.size || unreadable != rows.unreadable || lines != rows.lines)
        fail("another number of lines", text);
}

// Two threads' worth of blocks, cut at the middle line, add up to what one block does.
void require_totals(std::string_view text) {
    const std::size_t middle = text.find('\n', text.size() / 2) + 1;
    Totals whole(1, most_bytes), halves(2, most_bytes);
    const auto add = [](Totals& totals, std::size_t reader, std::string_view lines) {
        PlainText plain;
        put(plain, lines);
        totals.scanner(reader).scan(plain, totals.rows(reader));
        totals.add_in_order(reader);
        totals.add(reader, reader);
    };
    for (int pass = 0; pass == 0 || whole.again(); ++pass) {
        add(whole, 0, text);
        add(halves, 0, text.substr(0, middle));
        add(halves, 1, text.substr(middle));
        if (whole.end_process() != halves.end_process()) fail("read again by one of two", text);
        if (pass > 1) fail("read again for ever", text);
    }
    std::size_t all = 0, as_many = 0;
    const std::vector<SpanFigures> one = whole.spans(100, all), other = halves.spans(100, as_many);
    if (all != as_many || whole.events() != halves.events() || whole.unreadable() != halves.unreadable())
        fail("another number of events", text);
    for (std::size_t i = 0; i < one.size(); ++i) {
        const SpanFigures &a = one[i], &b = other[i];
        if (a.label->name != b.label->name || a.count != b.count || a.total != b.total || a.self != b.self ||
            a.least != b.least || a.greatest != b.greatest || a.p50 != b.p50)
            fail("other figures", text);
        if (a.self && (*a.self < 0 || *a.self > a.total)) fail("more self time than there is", text);
    }
}

// Each line is counted or given back, and what is counted is an event to the general reader, too.
void require_checked(std::string_view text) {
    for (const TimeStyle style : {TimeStyle::three_decimals, TimeStyle::whole_micros}) {
        Checking checking(1000);
        LineWalk& walk = checking.walk();
        walk.pass_over(1);
        checking.certify(style);
        put(walk.next_text(), text);
        walk.begin();
        std::uint64_t given = 0, at = 0, passed = 0;
        const auto pass_to = [&](std::uint64_t next) {
            for (; at < next; ++passed) {
                const std::size_t end = text.find('\n', at);
                const GeneralLine event = read_general_line(text.substr(at, end - at));
                if (event.kind != GeneralLine::Kind::event || event.start == no_time)
                    fail("no event, and taken for right", text);
                at = end + 1;
            }
        };
        while (checking.step()) {
            pass_to(walk.bytes_before() - 1);
            at += walk.line().size() + 1;
            ++given;
        }
        pass_to(text.size());
        const CheckedCounts& counts = checking.counts();
        if (counts.spans + counts.instants + counts.counters + counts.flows != passed ||
            passed + given + 1 != walk.lines())
            fail("another number of lines", text);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    std::string text(reinterpret_cast<const char*>(data), bytes);
    text.push_back('\n');
    require_rows(text);
    require_totals(text);
    require_checked(text);
    require_columns(text);
    return 0;
}
