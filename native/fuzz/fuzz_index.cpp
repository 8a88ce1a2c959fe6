// What files say of themselves: heads of blocks that lie, and figures that cannot be.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checked_line.hpp"
#include "dftrace/reading/traces/checking.hpp"
#include "dftrace/reading/traces/hopping.hpp"
#include "dftrace/reading/traces/members.hpp"
#include "dftrace/reading/traces/totals.hpp"
#include "packed_block.hpp"

using namespace dftrace;

namespace {

constexpr std::size_t most_bytes = 64u << 20;

// The input, eaten from its beginning; zeros behind its end.
class Input {
  public:
    Input(const std::uint8_t* data, std::size_t bytes) : at_(data), left_(bytes) {}
    bool any() const noexcept { return left_ > 0; }
    std::uint8_t byte() noexcept { return left_ ? (--left_, *at_++) : 0; }
    // A small number, or one of those at which something ends, or any.
    std::int64_t number() noexcept {
        constexpr std::int64_t ends[] = {INT64_MIN,
                                         INT64_MIN / 2,
                                         -1,
                                         127,
                                         128,
                                         1ll << 53,
                                         (1ll << 53) + 1,
                                         4'600'000'000'000'000'000,
                                         INT64_MAX / 2,
                                         INT64_MAX - 1,
                                         INT64_MAX};
        const std::uint8_t kind = byte();
        if (kind < 200) return kind;
        if (kind < 200 + std::size(ends)) return ends[kind - 200];
        std::uint64_t any = 0;
        for (int i = 0; i < 8; ++i) any = any << 8 | byte();
        return static_cast<std::int64_t>(any);
    }

  private:
    const std::uint8_t* at_;
    std::size_t left_;
};

std::string span(Input& in, std::int64_t& at) {
    const std::int64_t start = at + in.byte() % 16, duration = in.byte() % 32;
    at = start + duration;
    const std::string parent = std::to_string(in.byte() % 4), name = in.byte() % 2 ? "forward" : "backward";
    return R"({"id":4,"name":")" + name + R"(","cat":"compute","pid":7,"tid":8,"ts":)" +
           std::to_string(start) + R"(.000,"dur":)" + std::to_string(duration) +
           R"(.000,"ph":"X","args":{"hhash":"08cf3707b570dbec","p_idx":)" + parent + R"(,"level":3}})" + "\n";
}

void put(PlainText& text, std::string_view lines) {
    std::memcpy(text.room_for(lines.size()), lines.data(), lines.size());
    text.close(lines.size());
}

void add(Totals& totals, std::string_view lines) {
    PlainText plain;
    put(plain, lines);
    totals.scanner(0).scan(plain, totals.rows(0));
    totals.add_in_order(0);
    totals.add(0, 0);
}

void require_figures(Totals& totals) {
    std::size_t all = 0;
    for (const SpanFigures& of : totals.spans(100, all)) {
        const auto between = [&](double value) {
            return value >= static_cast<double>(of.least) && value <= static_cast<double>(of.greatest);
        };
        const WideNs count = of.count;
        if (!of.count || of.least > of.greatest || of.total < of.least * count ||
            of.total > of.greatest * count || (of.self && *of.self > of.total) || !between(of.p50) ||
            !between(of.p95) || !between(of.p99))
            fail("figures that cannot be", of.label->name);
    }
}

KnownFigures any_figures(Input& in) {
    KnownFigures known;
    known.lines = static_cast<std::uint64_t>(in.number());
    for (int left = in.byte() % 4; left > 0; --left) {
        KnownFigures::Spans& of = known.spans.emplace_back();
        of.label = {"compute", in.byte() % 2 ? "forward" : "backward"};
        of.count = static_cast<std::uint64_t>(in.number());
        for (std::int64_t* figure : {&of.total, &of.self, &of.least, &of.greatest}) *figure = in.number();
        of.exact = in.byte() % 2;
        for (int more = in.byte() % 16; more > 0; --more) of.durations.push_back(in.number());
        // Often what is said by itself is so.
        if (of.exact && in.byte() % 4) {
            std::erase_if(of.durations, [](std::int64_t ns) { return ns < 0 || ns > INT64_MAX / 32; });
            if (of.durations.empty()) continue;
            const auto [least, greatest] = std::minmax_element(of.durations.begin(), of.durations.end());
            of.count = of.durations.size();
            of.least = *least;
            of.greatest = *greatest;
            of.total = 0;
            for (const std::int64_t ns : of.durations) of.total += ns;
        }
    }
    for (int left = in.byte() % 3; left > 0; --left)
        known.others.push_back({std::string(in.byte() % 3, static_cast<char>(in.byte())),
                                {"counter", "loss"},
                                static_cast<std::uint64_t>(in.number())});
    for (int left = in.byte() % 3; left > 0; --left) {
        KnownFigures::Track& track = known.tracks.emplace_back();
        track.id = {7, 8 + in.byte() % 2};
        track.standing.end = in.number();
        track.standing.start = in.number();
        for (int more = in.byte() % 4; more > 0; --more)
            track.standing.groups.push_back({in.number(), in.number(), in.number(), in.number(),
                                             static_cast<std::uint64_t>(in.number())});
    }
    known.without_duration = static_cast<std::uint64_t>(in.byte() % 16 ? 0 : in.number());
    known.unreadable = static_cast<std::uint64_t>(in.byte() % 16 ? 0 : in.number());
    return known;
}

// Figures of a file, of another, and lines that go on where they end.
void read_figures(Input& in) {
    Totals totals(1, most_bytes);
    bool taken = false;
    for (int file = 0; file < 2; ++file) taken = totals.add_known(any_figures(in)) || taken;
    std::string lines;
    std::int64_t at = in.byte();
    for (int left = in.byte() % 8; left > 0; --left) lines += span(in, at);
    add(totals, lines);
    if (totals.end_process()) {
        add(totals, lines);
        if (totals.end_process()) fail("read again for ever", lines);
    }
    require_figures(totals);
    // What lines add up to is taken again as it is told.
    Totals alone(1, most_bytes), told(1, most_bytes);
    for (int pass = 0; pass == 0 || alone.again(); ++pass) {
        add(alone, lines);
        alone.end_process();
    }
    const std::optional<KnownFigures> known = alone.known();
    if (!known || !told.add_known(*known)) fail("figures of lines that are not taken", lines);
    told.end_process();
    std::size_t all = 0, as_many = 0;
    const std::vector<SpanFigures> one = alone.spans(10, all), other = told.spans(10, as_many);
    if (all != as_many || alone.lines() != told.lines() || alone.events() != told.events())
        fail("other lines than those that were told", lines);
    for (std::size_t i = 0; i < one.size(); ++i)
        if (one[i].count != other[i].count || one[i].total != other[i].total ||
            one[i].self != other[i].self || one[i].p99 != other[i].p99)
            fail("other figures than those that were told", lines);
    if (taken) totals.known();
}

// A file of blocks, some of whose bytes are others then; where it ends is a matter of luck, too.
std::string any_file(Input& in, bool gzip) {
    std::string file;
    std::int64_t at = 0;
    for (int blocks = in.byte() % 6; blocks > 0; --blocks) {
        const std::size_t begun = file.size();
        std::string lines;
        for (int left = in.byte() % 4; left > 0; --left) lines += span(in, at);
        if (lines.empty()) lines = "[\n";
        BlockReach reach;
        reach.add(in.byte(), in.number());
        append_block(file, gzip, lines, reach, in.byte() % 3 ? BlockHolds::lines : BlockHolds::index);
        for (int changes = in.byte() % 4; changes > 0; --changes)
            file[begun + in.byte() % std::min<std::size_t>(64, file.size() - begun)] =
                static_cast<char>(in.byte());
    }
    for (int more = in.byte() % 64; in.any() && more > 0; --more)
        file.push_back(static_cast<char>(in.byte()));
    if (!file.empty() && in.byte() % 2) file.resize(file.size() - in.byte() % file.size());
    return file;
}

// `raw`: what is left of the input is the file.
void read_file(Input& in, bool raw) {
    const bool gzip = in.byte() % 2;
    std::string bytes;
    if (raw)
        while (in.any()) bytes.push_back(static_cast<char>(in.byte()));
    else
        bytes = any_file(in, gzip);
    const int file = memfd_create("trace", MFD_CLOEXEC);
    if (file < 0 || write(file, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
        std::abort();
    // It may be shorter or longer than was thought.
    const std::uint64_t end = bytes.size() + in.byte() % 3;
    const Hops hops = hop_blocks(file, end);
    if (hops.file_bytes > end || hops.lines > hops.plain_bytes) fail("hopped too far", bytes);
    if (hops.file_bytes < bytes.size() && hops.blocks &&
        !begins_block(std::string_view(bytes).substr(hops.file_bytes)))
        fail("hopped to where no block begins", bytes);
    if (hops.index && (hops.index->place + hops.index->packed_bytes > hops.file_bytes ||
                       hops.index->lines_before > hops.lines || hops.index->plain_before > hops.plain_bytes))
        fail("an index beyond what was hopped over", bytes);
    Checking checking(100);
    checking.certify(TimeStyle::three_decimals);
    BlockByBlock blocks(file, gzip ? BlockCodec::gzip : BlockCodec::zstd, end);
    std::uint64_t place = 0, said = 0;
    while (const std::size_t size = blocks.read(place, checking.walk().next_text())) {
        checking.walk().begin();
        if (blocks.facts()) checking.hold_block(*blocks.facts(), size);
        while (checking.step()) ++said;
        if ((place += size) > end) fail("a block beyond the end", bytes);
    }
    checking.end();
    checking.figures().told();
    close(file);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
    Input in(data, bytes);
    const int kind = in.byte() % 3;
    if (kind == 0)
        read_figures(in);
    else
        read_file(in, kind == 1);
    return 0;
}
