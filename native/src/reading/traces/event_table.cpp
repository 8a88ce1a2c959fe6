// From the rows of blocks to the columns of a file.
#include "dftrace/reading/traces/event_table.hpp"

#include <algorithm>
#include <utility>

namespace dftrace {

namespace {

using Form = NarrowColumn::Form;

constexpr std::array one_byte{Form::u8};
constexpr std::array numbers_of_names{Form::u8, Form::u16, Form::u32};
constexpr std::array ids{Form::u32, Form::u64};
constexpr std::array signed_numbers{Form::i32, Form::i64};
constexpr std::array times{Form::i64};
constexpr std::array row_numbers{Form::u32, Form::i64};

bool is_place(WantedMember::Form form) noexcept {
    return form == WantedMember::Form::text || form == WantedMember::Form::all;
}

}  // namespace

EventTable::Members::Members(std::vector<WantedMember> wanted, std::uint8_t phase, Budget& budget)
    : taken(std::move(wanted), phase, budget), rows(row_numbers) {
    for (std::size_t at = 0; at < taken.wanted().size(); ++at) columns.emplace_back(signed_numbers);
}

std::array<NarrowColumn, EventTable::column_count> EventTable::no_columns() {
    return {NarrowColumn(one_byte),       NarrowColumn(numbers_of_names), NarrowColumn(ids),
            NarrowColumn(signed_numbers), NarrowColumn(signed_numbers),   NarrowColumn(times),
            NarrowColumn(times),          NarrowColumn(one_byte)};
}

void EventTable::add(const Rows& rows, std::string_view text, std::span<const TrackId> tracks,
                     std::int64_t base_ns) {
    const std::size_t count = rows.size;
    phases_.resize(count);
    bytes_.resize(count);
    first_.resize(count);
    second_.resize(count);
    for (std::size_t row = 0; row < count; ++row) phases_[row] = letters_[rows.ph[row]];
    columns[ph].add(phases_.data(), count);
    columns[label].add(rows.label.data(), count);
    columns[id].add(rows.id.data(), count);
    for (std::size_t row = 0; row < count; ++row) {
        const TrackId& track = tracks[rows.track[row]];
        first_[row] = track.pid;
        second_[row] = track.tid;
    }
    columns[pid].add(first_.data(), count);
    columns[tid].add(second_.data(), count);
    for (std::size_t row = 0; row < count; ++row)
        if (rows.start[row] == no_time || __builtin_add_overflow(rows.start[row], base_ns, &first_[row]))
            first_[row] = -1;
    columns[start_ns].add(first_.data(), count);
    columns[dur_ns].add(rows.duration.data(), count);
    // No parent is 0, or where ids are left out the greatest number, behind which comes 0.
    for (std::size_t row = 0; row < count; ++row) bytes_[row] = rows.parent[row] + 1 <= 1;
    columns[outermost].add(bytes_.data(), count);
    for (Members& one : members) {
        one.taken.take(rows, phases_, text, one.mask);
        const std::vector<std::uint32_t>& found = one.taken.rows();
        first_.resize(found.size());
        for (std::size_t at = 0; at < found.size(); ++at)
            first_[at] = static_cast<std::int64_t>(rows_ + found[at]);
        one.rows.add(first_.data(), found.size());
        for (std::size_t at = 0; at < one.columns.size(); ++at) {
            const std::int64_t* const values = one.taken.values().data() + at;
            if (!is_place(one.taken.wanted()[at].form)) {
                one.columns[at].add(values, found.size(), one.columns.size());
                continue;
            }
            for (std::size_t row = 0; row < found.size(); ++row) {
                const std::int64_t place = values[row * one.columns.size()];
                first_[row] = place == no_time ? -1 : place;
            }
            one.columns[at].add(first_.data(), found.size());
        }
    }
    rows_ += count;
}

void EventTable::cut(std::size_t rows) {
    for (NarrowColumn& column : columns) column.cut(rows);
    for (Members& one : members) {
        const std::size_t count = one.rows.below(static_cast<std::int64_t>(rows));
        one.rows.cut(count);
        for (NarrowColumn& column : one.columns) column.cut(count);
    }
    rows_ = std::min(rows_, rows);
}

}  // namespace dftrace
