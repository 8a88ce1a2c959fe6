// Rows of numbers to lines and blocks, by what the recorder itself writes them with.
#include "dftrace/writing/made_trace.hpp"

#include <charconv>
#include <limits>
#include <stdexcept>

namespace dftrace {

MadeTrace::MadeTrace(TraceSettings settings, ProcessIdentity process, std::uint32_t parent_pid,
                     HostClocks clocks, BlockCodec& codec)
    : settings_(std::move(settings)),
      process_(std::move(process)),
      parent_pid_(parent_pid),
      clocks_(clocks),
      formatter_(settings_, process_.pid),
      codec_(codec) {}

std::size_t MadeTrace::add_pattern(Kind kind, std::string name_json, std::uint32_t tid, std::uint16_t level,
                                   std::string_view args) {
    Pattern made{kind, level, tid, std::move(name_json), formatter_.track(tid), {{}}, {}};
    for (std::size_t at = 0; at < args.size(); ++at) {
        const char next = args[at] == '%' && at + 1 < args.size() ? args[at + 1] : '\0';
        if (next == 'd' || next == 't') {
            made.is_time.push_back(next == 't');
            made.texts.emplace_back();
            ++at;
        } else {
            made.texts.back() += args[at];
        }
    }
    patterns_.push_back(std::move(made));
    return patterns_.size() - 1;
}

void MadeTrace::arguments(const Pattern& of, const std::int64_t* numbers) {
    args_ = of.texts.front();
    for (std::size_t place = 0; place < of.is_time.size(); ++place) {
        char text[32];
        const std::int64_t number = numbers[place];
        const std::int64_t whole = of.is_time[place] ? number / 1000 : number;
        char* end = std::to_chars(text, text + sizeof text, whole).ptr;
        if (of.is_time[place]) {
            *end++ = '.';
            for (std::int64_t unit = 100, rest = number % 1000; unit; unit /= 10)
                *end++ = static_cast<char>('0' + rest / unit % 10);
        }
        args_.append(text, end);
        args_ += of.texts[place + 1];
    }
}

void MadeTrace::line(ByteBuffer& out, std::span<const std::int64_t> row) {
    const auto which = static_cast<std::size_t>(row[pattern]);
    if (which >= patterns_.size()) throw std::invalid_argument("there is no such pattern");
    const Pattern& of = patterns_[which];
    if (row.size() < first_argument + of.is_time.size())
        throw std::invalid_argument("a row has too few numbers for its pattern");
    for (std::size_t column = start_ns; column < item; ++column)
        if (row[column] < 0) throw std::invalid_argument("a time or a number of an event is below 0");
    if (row[end_ns] < row[start_ns]) throw std::invalid_argument("an event ends before it begins");
    arguments(of, row.data() + first_argument);
    Record record{};
    record.id = static_cast<std::uint64_t>(row[id]);
    record.parent = static_cast<std::uint64_t>(row[parent]);
    record.level = of.level;
    record.kind = of.kind;
    if (row[item] >= 0) {
        record.flags = RecordFlag::has_count;
        record.value = static_cast<std::uint64_t>(row[item]);
    }
    formatter_.line(out, record, of.track, {of.name_json, args_, {}},
                    static_cast<std::uint64_t>(row[start_ns]), static_cast<std::uint64_t>(row[end_ns]));
    ++lines_[static_cast<std::size_t>(of.kind)];
    const auto base_ns = static_cast<std::int64_t>(settings_.time_base_us * 1000);
    const std::int64_t from = row[start_ns] - base_ns, to = row[end_ns] - base_ns;
    const auto node = static_cast<std::uint32_t>(which);
    switch (of.kind) {
        case Kind::span:
            index_.add_span(
                node, [&] { return std::string_view(of.name_json); }, of.tid, from, to, record.parent);
            reach_.add(from, to);
            break;
        case Kind::instant:
            index_.add_other(node, of.name_json, 'i');
            reach_.add(from, from);
            break;
        case Kind::counter:
            index_.add_other(node, of.name_json, 'C');
            reach_.add(from, from);
            break;
        default: index_.add_other(node, of.name_json, 'M');
    }
}

std::string MadeTrace::block(const ByteBuffer& text, BlockFacts facts) {
    facts.lines = static_cast<std::uint32_t>(text.line_breaks());
    std::string made;
    if (settings_.compression == Compression::none)
        made = text.view();
    else
        codec_.append(made, text.view(), facts);
    plain_bytes_ += text.size();
    file_bytes_ += made.size();
    return made;
}

std::string MadeTrace::opening(const std::vector<std::pair<std::uint32_t, std::string>>& tracks) {
    ByteBuffer text;
    formatter_.opening(text);
    formatter_.header(text, parent_pid_, "tsc", 0, process_, clocks_.keeping);
    formatter_.clocks(text, clocks_);
    for (const auto& [tid, name] : tracks) formatter_.track_name(text, tid, name);
    index_.landed(text.line_breaks(), {});
    return block(text, {});
}

std::string MadeTrace::rows(std::span<const std::int64_t> numbers, std::size_t width) {
    if (width < first_argument || numbers.size() % width)
        throw std::invalid_argument("rows have at least six numbers, and all as many");
    ByteBuffer text;
    std::string made;
    reach_ = {};
    const auto end = [&] {
        made += block(text, {.reach = reach_});
        index_.landed(text.line_breaks(), std::exchange(reach_, {}));
        text.clear();
    };
    for (std::size_t at = 0; at < numbers.size(); at += width) {
        line(text, numbers.subspan(at, width));
        if (text.size() >= settings_.block_bytes) end();
    }
    if (text.size()) end();
    return made;
}

std::string MadeTrace::ending(std::uint64_t at_ns, bool with_index) {
    std::string made;
    ByteBuffer index;
    constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
    const std::string members = with_index ? index_.members(plain_bytes_, any) : std::string();
    if (!members.empty()) {
        formatter_.index(index, members);
        made = block(index, {.holds = BlockHolds::index, .reach = {}});
    }
    ByteBuffer text;
    HostClocks clocks = clocks_;
    const auto since = static_cast<std::int64_t>(at_ns) - clocks.realtime_ns;
    clocks.boottime_ns += since;
    clocks.realtime_ns += since;
    formatter_.clocks(text, clocks);
    formatter_.footer(text, lines_, {}, plain_bytes_ + text.size(), file_bytes_, {"finalize"}, 0,
                      clocks.keeping);
    return made + block(text, {});
}

}  // namespace dftrace
