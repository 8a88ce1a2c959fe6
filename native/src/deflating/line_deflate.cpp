// Repetitions between lines, gathered into blocks.
#include "dftrace/deflating/line_deflate.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "deflating/packed_block.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace dftrace {

namespace {

// How many bytes are the same, `most` at most.
std::uint32_t same_bytes(const char* older, const char* newer, std::uint32_t most) noexcept {
    std::uint32_t bytes = 0;
#if defined(__SSE2__)
    for (; bytes + 16 <= most; bytes += 16) {
        const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(older + bytes));
        const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(newer + bytes));
        const auto same = static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(a, b)));
        if (same != 0xffff) return bytes + static_cast<std::uint32_t>(std::countr_one(same));
    }
#endif
    while (bytes < most && older[bytes] == newer[bytes]) ++bytes;
    return bytes;
}

// How many of the bytes in front are the same, `most` at most. Eight more than these are read.
std::uint32_t same_before(const char* older, const char* newer, std::uint32_t most) noexcept {
    for (std::uint32_t bytes = 0; bytes < most; bytes += 8) {
        std::uint64_t a, b;
        std::memcpy(&a, older - bytes - sizeof a, sizeof a);
        std::memcpy(&b, newer - bytes - sizeof b, sizeof b);
        if (const std::uint64_t differs = a ^ b)
            return std::min(most, bytes + static_cast<std::uint32_t>(std::countl_zero(differs)) / 8);
    }
    return most;
}

// Where a line and its fields begin.
struct LineFields {
    static constexpr std::uint32_t most = 29;  // of those behind nothing is known
    std::uint32_t begin;
    std::uint32_t named_so_before;  // number of the last line of that name in front of it, 0: none
    std::uint16_t count;
    std::array<std::uint16_t, most> at;  // from the line's beginning: 0, then the commas, then the `}}`
};

// Which of the 16 bytes at `place` are commas, a bit for each.
inline std::uint64_t commas(const char* place) noexcept {
#if defined(__SSE2__)
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(place));
    return static_cast<unsigned>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, _mm_set1_epi8(','))));
#else
    std::uint64_t found = 0;
    for (unsigned i = 0; i < 16; ++i) found |= std::uint64_t{place[i] == ','} << i;
    return found;
#endif
}

// Fills in the fields of the line at `begin`, which ends before `end`, as its text does at the latest.
inline void find_fields(const char* begin, const char* end, LineFields& line) noexcept {
    constexpr std::ptrdiff_t step = 64;
    line.at[0] = 0;
    std::uint32_t count = 1;
    const auto put = [&](std::uint64_t found, std::uint32_t offset) {
        for (; found && count < LineFields::most - 1; found &= found - 1)
            line.at[count++] =
                static_cast<std::uint16_t>(offset + static_cast<unsigned>(std::countr_zero(found)));
    };
    const char* const known = end - begin > UINT16_MAX ? begin + UINT16_MAX : end;
    const char* place = begin;
    for (; known - place >= step; place += step)
        put(commas(place) | commas(place + 16) << 16 | commas(place + 32) << 32 | commas(place + 48) << 48,
            static_cast<std::uint32_t>(place - begin));
    for (; known - place >= 16; place += 16) put(commas(place), static_cast<std::uint32_t>(place - begin));
    char last[16] = {};
    std::memcpy(last, place, static_cast<std::size_t>(known - place));
    put(commas(last), static_cast<std::uint32_t>(place - begin));
    if (end == known && end - begin > 3 && end[-2] == '}' && end[-3] == '}')
        line.at[count++] = static_cast<std::uint16_t>(end - 3 - begin);
    line.count = static_cast<std::uint16_t>(count);
}

constexpr std::uint32_t lines_known = 256;  // so many back they are known by their names
constexpr unsigned name_bits = 10, value_bits = 11;
constexpr std::uint64_t mixing = 0x9E3779B97F4A7C15u;

// About how many bits less a match takes than its bytes.
inline std::int32_t gain_of(std::uint32_t length, std::uint32_t distance) noexcept {
    constexpr std::int32_t bits_of_byte = 4, bits_of_match = 5;
    if (length < shortest_match) return 0;
    return static_cast<std::int32_t>(length) * bits_of_byte - bits_of_match -
           static_cast<std::int32_t>(std::bit_width(distance));
}

// Of the 16 bytes that a name begins with.
inline std::uint32_t name_hash(const char* name, std::uint32_t fields) noexcept {
    std::uint64_t a, b;
    std::memcpy(&a, name, sizeof a);
    std::memcpy(&b, name + sizeof a, sizeof b);
    return static_cast<std::uint32_t>(((a + fields) * mixing ^ b) * mixing >> (64 - name_bits));
}

// Of the bytes in front, back to a colon, eight at most.
inline std::uint32_t value_hash(const char* end) noexcept {
    std::uint64_t bytes;
    std::memcpy(&bytes, end - sizeof bytes, sizeof bytes);
    constexpr std::uint64_t ones = 0x0101010101010101u, highs = ones << 7;
    const std::uint64_t differs = bytes ^ ones * ':';
    // A semicolon behind a colon may pass for one, which does no harm.
    const std::uint64_t colons = (differs - ones) & ~differs & highs;
    if (colons) bytes &= ~(~std::uint64_t{0} >> std::countl_zero(colons));
    return static_cast<std::uint32_t>(bytes * mixing >> (64 - value_bits));
}

// `,"ts":` and `,"dur":`: such a value is hardly ever that of another line.
inline bool is_time(const char* field) noexcept {
    return field[2] == 't' ? field[3] == 's' : field[2] == 'd' && field[3] == 'u';
}

struct Match {
    std::uint32_t length = 0;
    std::uint32_t distance = 0;
    std::int32_t gain = 0;
};

constexpr std::uint32_t shortest_far = 6;
// As far back as a match may reach nothing is judged; what follows sees all of it.
constexpr std::uint32_t first_judged = farthest_match, stretch = 2 * farthest_match;

std::uint64_t first_bytes(const char* place) noexcept {
    std::uint64_t bytes;
    std::memcpy(&bytes, place, sizeof bytes);
    return bytes << (64 - 8 * shortest_far);
}

// About what a match takes.
constexpr unsigned bits_of_match(std::uint32_t distance) noexcept {
    return 9 + static_cast<unsigned>(std::bit_width(distance));
}

// What looking between lines alone has missed: repetitions of plain bytes at all distances.
class FarRepeats {
  public:
    void clear() noexcept { bits_ = missed_ = 0; }
    // Looks into the beginning of a block that has its codes and takes so many bits for so many bytes; `text`
    // is that of the block and what follows. A text of few blocks is looked at to the end of each: its parts
    // are judged by themselves.
    void look(const PackedBlock& block, std::uint64_t block_bits, std::uint32_t block_bytes,
              std::string_view text, bool in_little) noexcept;
    // Of the bits that were looked at, about how many such repetitions would have saved.
    double share_missed() const noexcept {
        return bits_ ? static_cast<double>(missed_) / static_cast<double>(bits_) : 0;
    }

  private:
    static constexpr unsigned table_bits = 12;
    std::array<std::uint32_t, std::size_t{1} << table_bits> last_;  // where such bytes stood
    std::uint64_t bits_ = 0, missed_ = 0;
};

void FarRepeats::look(const PackedBlock& block, std::uint64_t block_bits, std::uint32_t block_bytes,
                      std::string_view text, bool in_little) noexcept {
    if (text.size() < first_judged + first_judged / 4) return;
    last_.fill(0);
    const char* const begin = text.data();
    const std::size_t looked_at = in_little ? text.size() : stretch;
    std::uint32_t at = 0;
    for (const PackedBlock::Sequence& sequence : block.sequences()) {
        const std::uint32_t plain_end = at + sequence.plain_bytes, next = plain_end + sequence.length();
        if (next >= looked_at || next + sizeof(std::uint64_t) > text.size()) break;
        if (sequence.plain_bytes < shortest_far) {
            at = next;
            continue;
        }
        std::uint32_t told = first_judged;
        for (std::uint32_t i = at; i < plain_end; ++i) {
            const std::uint64_t bytes = first_bytes(begin + i);
            const std::uint64_t hash = bytes * mixing >> (64 - table_bits);
            const std::uint32_t older = std::exchange(last_[hash], i);
            // Nearly always another text: this is the one thing to ask.
            if (first_bytes(begin + older) != bytes) [[likely]]
                continue;
            const std::uint32_t distance = i - older;
            if (i < told || distance == 0 || distance > farthest_match) continue;
            const auto most =
                static_cast<std::uint32_t>(std::min<std::size_t>(longest_match, text.size() - i));
            const std::uint32_t length = same_bytes(begin + older, begin + i, most);
            unsigned bits = i + length >= next ? block.bits_of(sequence) : 0;
            for (std::uint32_t n = i; n < std::min(i + length, plain_end); ++n)
                bits += block.bits_of(begin[n]);
            if (bits <= bits_of_match(distance)) continue;
            missed_ += bits - bits_of_match(distance);
            told = i + length;
        }
        at = next;
    }
    if (at > first_judged) bits_ += block_bits * (at - first_judged) / block_bytes;
}

}  // namespace

struct LineDeflate::State {
    PackedBlock block;
    FarRepeats far;
    std::array<LineFields, lines_known> lines;
    std::array<std::uint32_t, std::size_t{1} << name_bits> last_of_name;    // number of the line, from 1
    std::array<std::uint32_t, std::size_t{1} << value_bits> last_of_value;  // where it ended

    const char* text;
    std::uint32_t end;
    std::uint32_t told;  // bytes of it that are in a block
    std::uint32_t block_begin;
    BitWriter out;
    std::uint64_t room_bits;
    std::size_t letters;
    double densest;

    bool write_block(bool last) noexcept {
        const std::uint64_t bits = block.make_codes();
        if (bits > room_bits) return false;
        room_bits -= bits;
        constexpr std::uint32_t least_judged = 64u << 10;  // the last one may be of a few lines
        if (const std::uint32_t bytes = told - block_begin; bytes >= least_judged)
            densest = std::max(densest, static_cast<double>(bits) / (8.0 * bytes));
        letters += block.letters();
        constexpr std::uint32_t little_text = 512u << 10;
        far.look(block, bits, told - block_begin, {text + block_begin, end - block_begin}, end < little_text);
        block.write(out, text + block_begin, last);
        block.clear();
        block_begin = told;
        return true;
    }

    // A match at `at` with where that field begins in an older line.
    void look(const LineFields* older, std::uint32_t field, std::uint32_t at, std::uint32_t most,
              Match& best) const noexcept {
        if (!older || field >= older->count) return;
        const std::uint32_t begin = older->begin + older->at[field], distance = at - begin;
        if (distance > farthest_match) return;
        const std::uint32_t length = same_bytes(text + begin, text + at, most);
        const std::int32_t gain = gain_of(length, distance);
        if (gain > best.gain) best = {length, distance, gain};
    }

    // A match that takes in what lies in front of `at`, where the last such value stood. `at` becomes its
    // beginning.
    void look_for_value(std::uint32_t& at, std::uint32_t most, Match& best) noexcept {
        const std::uint32_t older = std::exchange(last_of_value[value_hash(text + at)], at);
        const std::uint32_t distance = at - older;
        if (!older || distance > farthest_match) return;
        const std::uint32_t before =
            same_before(text + older, text + at, std::min(at - told, older - value_bytes));
        if (!before) return;
        const std::uint32_t length =
            std::min(before + same_bytes(text + older, text + at, most), longest_match);
        const std::int32_t gain = gain_of(length, distance);
        if (gain <= best.gain) return;
        best = {length, distance, gain};
        at -= before;
    }

    const LineFields* last_named_so(LineFields& line, std::uint32_t number, std::uint32_t bytes) noexcept {
        constexpr std::uint32_t in_front = sizeof(",\"name\":\"") - 1, looked_at = 16;
        line.named_so_before = 0;
        if (line.count < 2 || bytes < line.at[1] + in_front + looked_at) return nullptr;
        const char* const name = text + line.begin + line.at[1] + in_front;
        std::uint32_t last = std::exchange(last_of_name[name_hash(name, line.count)], number);
        line.named_so_before = last;
        // The line before is looked at anyway.
        if (last && last + 1 == number) last = lines[last % lines_known].named_so_before;
        return last && number - last < lines_known ? &lines[last % lines_known] : nullptr;
    }

    bool compress() noexcept {
        last_of_name.fill(0);
        last_of_value.fill(0);
        const LineFields* before = nullptr;
        std::uint32_t number = 0;
        for (std::uint32_t begin = 0, next = 0; begin < end; begin = next) {
            const void* const line_break = std::memchr(text + begin, '\n', end - begin);
            next = line_break ? static_cast<std::uint32_t>(static_cast<const char*>(line_break) - text) + 1
                              : end;
            LineFields& line = lines[++number % lines_known];
            line.begin = begin;
            find_fields(text + begin, text + next, line);
            const LineFields* const same = last_named_so(line, number, next - begin);
            const std::uint32_t shift = before ? std::uint32_t{before->count} - line.count : 0;
            for (std::uint32_t field = 0; field < line.count; ++field) {
                std::uint32_t at = begin + line.at[field];
                if (at < told) continue;
                const std::uint32_t most = std::min(longest_match, end - at);
                Match best;
                look(before, field, at, most, best);
                // Where one of both has a field more they may be alike from their ends.
                constexpr std::uint32_t short_match = 12;
                if (shift && best.length < short_match) look(before, field + shift, at, most, best);
                look(same, field, at, most, best);
                if (at != told && field > 1 && at >= value_bytes &&
                    !(line.at[field] - line.at[field - 1] > 4 && is_time(text + begin + line.at[field - 1])))
                    look_for_value(at, most, best);
                if (!best.length) continue;
                // What is the same in front of it, as the last digits of a number, is of the match, too.
                if (const std::uint32_t plain = at - told; plain && at - best.distance >= 8 + plain) {
                    const std::uint32_t more =
                        std::min(same_before(text + at - best.distance, text + at, plain),
                                 longest_match - best.length);
                    at -= more;
                    best.length += more;
                }
                block.add(text + told, at - told, best.length, best.distance);
                told = at + best.length;
                if (block.full() && !write_block(false)) return false;
            }
            before = &line;
        }
        block.add_last(text + told, end - told);
        told = end;
        return write_block(true);
    }

    static constexpr std::uint32_t value_bytes = 8;  // of one that are looked at
};

LineDeflate::LineDeflate() : state_(new State) {}
LineDeflate::~LineDeflate() = default;

std::size_t LineDeflate::letters_told() const noexcept { return state_->letters; }

double LineDeflate::densest() const noexcept { return state_->densest; }
double LineDeflate::share_missed() const noexcept { return state_->far.share_missed(); }

std::size_t LineDeflate::compress(std::string_view text, char* out, std::size_t room) noexcept {
    constexpr std::size_t behind = sizeof(std::uint64_t);  // what is written may be touched so far
    constexpr std::size_t most = std::size_t{1} << 31;
    if (text.size() > most || room <= behind) return 0;
    State& state = *state_;
    state.block.clear();
    state.text = text.data();
    state.end = static_cast<std::uint32_t>(text.size());
    state.told = state.block_begin = 0;
    state.out = {out};
    state.letters = 0;
    state.densest = 0;
    state.far.clear();
    state.room_bits = (room - behind) * 8;
    return state.compress() ? static_cast<std::size_t>(state.out.finish() - out) : 0;
}

}  // namespace dftrace
