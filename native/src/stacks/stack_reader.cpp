// A stack is believed where two readings of it are the same and its outermost frame is the thread's first.
//
// Two readings are not enough: a thread that is preempted while it links a frame stands still with a frame
// that has no caller. Its first frame lies at the beginning of its first chunk.
#include "dftrace/stacks/stack_reader.hpp"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

namespace dftrace {

namespace {

constexpr int most_tries = 3;
constexpr std::size_t most_threads = 4096;
constexpr std::size_t most_frames = 20'000;
constexpr std::size_t most_kept = 1000;  // the outer ones
constexpr std::size_t most_chunks = 64;
constexpr int most_rounds_apart = 64;
constexpr std::size_t largest_chunk = 1 << 20;
constexpr std::size_t chunk_head = 3 * sizeof(std::uint64_t);
constexpr std::size_t most_names = 1 << 16;
constexpr std::size_t most_nodes = 1 << 18;
constexpr std::size_t word = sizeof(std::uint64_t);

std::uint64_t word_at(const std::byte* from, std::size_t offset = 0) noexcept {
    std::uint64_t value;
    std::memcpy(&value, from + offset, sizeof value);
    return value;
}

// What can be the address of an object: pointers of CPython are multiples of eight.
bool can_be_object(std::uint64_t address) noexcept {
    return address > 0xffff && address < std::uint64_t{1} << 47 && address % word == 0;
}

// Newer interpreters mark pointers to code by their low bits.
std::uint64_t without_mark(std::uint64_t pointer) noexcept { return pointer & ~std::uint64_t{7}; }

// The clock of a thread by its id in the kernel, as <linux/posix-timers.h> makes it: per thread, of the
// scheduler.
std::int64_t cpu_of(pid_t thread) noexcept {
    constexpr clockid_t of_thread = 4, of_scheduler = 2;
    timespec time;
    const auto clock = static_cast<clockid_t>(~static_cast<unsigned>(thread) << 3) | of_thread | of_scheduler;
    if (clock_gettime(clock, &time)) return StackSample::not_known;
    return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

}  // namespace

StackReader::StackReader(const InterpreterLayout& layout, MemoryWay way, Clock clock)
    : layout_(layout), way_(way), clock_(clock), names_(layout_), state_(layout.thread.size) {}

bool StackReader::is_full() const noexcept {
    return names_.names().size() >= most_names || table_.nodes().size() >= most_nodes;
}

void StackReader::clear() noexcept {
    names_.clear();
    table_.clear();
    seen_.clear();
}

void StackReader::sample(const Wanted& wanted, std::vector<StackSample>& into) {
    constexpr std::size_t rounds_apart = 256;
    sample_all(wanted, into);
    // Of threads that are gone nothing is kept.
    if (++counts_.rounds % rounds_apart == 0)
        std::erase_if(seen_,
                      [this](const auto& one) { return one.second.round + rounds_apart < counts_.rounds; });
}

void StackReader::sample_all(const Wanted& wanted, std::vector<StackSample>& into) {
    unread_.clear();
    OwnMemory memory(way_);
    std::uint64_t state = 0;
    if (!memory.is_open() || !memory.read(state, layout_.interpreter + layout_.threads)) {
        // Of an address that is always there: the program has locked itself in since.
        if (const MemoryWay other = find_memory_way(way_); other != MemoryWay::none) way_ = other;
        return;
    }
    for (std::size_t i = 0; state && i < most_threads; ++i) {
        // A state that was freed is that of no thread of this interpreter: the rest of the list is lost with
        // it.
        if (!can_be_object(state) || !memory.read(state_.data(), state, state_.size()) ||
            word_at(state_.data(), layout_.thread.interpreter) != layout_.interpreter)
            return;
        const std::uint64_t at = std::exchange(state, word_at(state_.data(), layout_.thread.next));
        const auto thread = static_cast<pid_t>(word_at(state_.data(), layout_.thread.native_id));
        if (!thread || !wanted(thread)) continue;
        Seen& seen = seen_[thread];
        seen.round = counts_.rounds;
        Reading reading = Reading::torn;
        if (seen.too_deep == at && seen.rounds_left) {
            --seen.rounds_left;
            reading = Reading::too_deep;
        }
        for (int tries = 1; tries <= most_tries && reading == Reading::torn; ++tries) {
            if (tries > 1 && !memory.read(state_.data(), at, state_.size())) break;
            reading = read_thread(memory, at, thread, seen, tries == most_tries, into);
            if (reading != Reading::too_deep) continue;
            // All of it would be copied for nothing: not soon again.
            ++counts_.too_deep;
            seen.too_deep = at;
            seen.rounds_left = seen.rounds_apart = std::clamp(2 * seen.rounds_apart, 1, most_rounds_apart);
        }
        if (reading == Reading::done || reading == Reading::none) {
            seen.rounds_apart = 0;
            continue;
        }
        ++counts_.unread;
        unread_.push_back(thread);
    }
}

StackReader::Reading StackReader::read_thread(OwnMemory& memory, std::uint64_t state, pid_t thread,
                                              Seen& seen, bool last_try, std::vector<StackSample>& into) {
    const std::int64_t cpu_ns = cpu_of(thread);
    const bool same_thread = seen.state == state && cpu_ns >= 0;
    const std::int64_t spent_ns = same_thread ? cpu_ns - seen.cpu_ns : StackSample::not_known;
    const std::uint64_t at_ns = clock_();
    const std::uint64_t frame = word_at(state_.data(), layout_.thread.frame);
    if (!frame) return Reading::none;
    std::uint64_t innermost = frame;
    if (!read_chunks(memory, frame, innermost)) return Reading::torn;
    if (chunk_count_ == most_chunks && word_at(chunks_[chunk_count_ - 1].bytes.data()))
        return Reading::too_deep;
    if (!innermost) return Reading::none;

    const std::byte* top = in_chunks(innermost, layout_.frame.instruction + word);
    if (spent_ns == 0 && seen.whole && top && seen.innermost == innermost &&
        seen.instruction == word_at(top, layout_.frame.instruction)) {
        ++counts_.at_rest;
        ++counts_.samples;
        into.push_back({at_ns, thread, seen.stack, false, 0});
        return Reading::done;
    }
    if (!walk(memory, innermost)) return frames_.size() == most_frames ? Reading::too_deep : Reading::torn;
    if (frames_.empty()) return Reading::torn;
    const bool deep = frames_.size() > most_kept;
    if (deep) frames_.erase(frames_.begin(), frames_.end() - most_kept);
    bool whole = false;
    const std::size_t still = still_there(memory, state, frame, innermost, whole);
    // Dropping what does not stand still would favour code that calls little: its outer part is kept.
    if ((!whole && !last_try) || !still) return Reading::torn;
    std::uint32_t node = StackNode::no_caller;
    const std::size_t named = name_frames(memory, still, node);
    if (!named) return Reading::torn;
    whole = whole && named == frames_.size() && !deep;
    seen = {counts_.rounds, state, cpu_ns, innermost, frames_.front().instruction, node, whole};
    ++counts_.samples;
    counts_.cut += !whole;
    into.push_back({at_ns, thread, node, !whole, spent_ns});
    return Reading::done;
}

StackReader::Chunk& StackReader::new_chunk(std::uint64_t at, std::size_t size) {
    if (chunk_count_ == chunks_.size()) chunks_.emplace_back();
    Chunk& chunk = chunks_[chunk_count_++];
    chunk.at = at;
    chunk.size = size;
    if (chunk.bytes.size() < size) chunk.bytes.resize(size);
    return chunk;
}

bool StackReader::read_chunks(OwnMemory& memory, std::uint64_t frame, std::uint64_t& innermost) {
    chunk_count_ = 0;
    std::array<MemoryPart, 2> parts;
    std::size_t count = 0;
    if (layout_.thread.frame_is_behind)
        parts[count++] = {&innermost, frame + layout_.thread.current, sizeof innermost};
    const std::uint64_t at = word_at(state_.data(), layout_.thread.chunk);
    const std::uint64_t top = word_at(state_.data(), layout_.thread.chunk + word);
    const bool has_chunk = at && top >= at + chunk_head && top - at < largest_chunk;
    if (has_chunk) parts[count++] = {new_chunk(at, top - at).bytes.data(), at, top - at};
    if (count && !memory.read({parts.data(), count})) return false;
    while (has_chunk && chunk_count_ < most_chunks) {
        const std::uint64_t before = word_at(chunks_[chunk_count_ - 1].bytes.data());
        std::array<std::uint64_t, 3> head;
        if (!before) break;
        if (!can_be_object(before) || !memory.read(head, before) || head[1] < chunk_head ||
            head[1] > largest_chunk)
            return false;
        if (!memory.read(new_chunk(before, head[1]).bytes.data(), before, head[1])) return false;
    }
    return true;
}

const std::byte* StackReader::in_chunks(std::uint64_t at, std::size_t size) const noexcept {
    for (std::size_t i = 0; i < chunk_count_; ++i) {
        const Chunk& chunk = chunks_[i];
        if (at >= chunk.at && at + size <= chunk.at + chunk.size) return chunk.bytes.data() + (at - chunk.at);
    }
    return nullptr;
}

bool StackReader::walk(OwnMemory& memory, std::uint64_t innermost) {
    const auto& frame = layout_.frame;
    const std::size_t size = std::max({frame.code, frame.caller, frame.instruction, frame.owner}) + word;
    std::array<std::byte, 256> elsewhere;
    if (size > elsewhere.size()) return false;
    frames_.clear();
    std::uint64_t outermost = 0;
    for (std::uint64_t at = innermost; at;) {
        if (!can_be_object(at)) return false;
        if (frames_.size() == most_frames) return false;
        const std::byte* bytes = in_chunks(at, size);
        // Those of generators and coroutines lie in their objects.
        if (!bytes) {
            if (!memory.read(elsewhere.data(), at, size)) return false;
            bytes = elsewhere.data();
        }
        const Frame one{at, without_mark(word_at(bytes, frame.code)), word_at(bytes, frame.caller),
                        word_at(bytes, frame.instruction)};
        if (static_cast<std::uint8_t>(bytes[frame.owner]) < frame.interpreters_own) {
            if (!can_be_object(one.code)) return false;
            frames_.push_back(one);
            outermost = at;
        }
        at = one.caller;
    }
    for (std::size_t i = 0; i < chunk_count_; ++i) {
        const Chunk& chunk = chunks_[i];
        const std::uint64_t first = chunk.at + chunk_head;
        if (!word_at(chunk.bytes.data()) && (outermost == first || outermost == first + word)) return true;
    }
    ++counts_.without_root;
    return false;
}

std::size_t StackReader::still_there(OwnMemory& memory, std::uint64_t state, std::uint64_t frame,
                                     std::uint64_t innermost, bool& all) {
    const std::size_t first = std::min({layout_.frame.code, layout_.frame.caller, layout_.frame.instruction});
    const std::size_t size =
        std::max({layout_.frame.code, layout_.frame.caller, layout_.frame.instruction}) + word - first;
    // Inwards and outwards: of calls that come again and again, one reading may take a caller before and its
    // callee after, and the next one in the other order takes the same two.
    const std::size_t count = frames_.size();
    std::uint64_t frame_again = 0;
    std::uint64_t innermost_again = innermost;
    again_.resize(2 * count * size);
    parts_.clear();
    for (std::size_t i = count; i-- > 0;)
        parts_.push_back({again_.data() + (count + i) * size, frames_[i].at + first, size});
    parts_.push_back({&frame_again, state + layout_.thread.frame, word});
    if (layout_.thread.frame_is_behind)
        parts_.push_back({&innermost_again, frame + layout_.thread.current, word});
    for (std::size_t i = 0; i < count; ++i)
        parts_.push_back({again_.data() + i * size, frames_[i].at + first, size});
    all = false;
    if (!memory.read(parts_)) return 0;
    const bool same_top = frame_again == frame && innermost_again == innermost;
    // Frames that were left stand in memory as they were: below the innermost one of now nothing is believed.
    std::size_t lowest = 0;
    if (!same_top) {
        const bool known = !layout_.thread.frame_is_behind || frame_again == frame;
        const std::uint64_t now = layout_.thread.frame_is_behind ? innermost_again : frame_again;
        const auto found = std::ranges::find(frames_, now, &Frame::at);
        lowest = !known || found == frames_.end() ? 1 : static_cast<std::size_t>(found - frames_.begin());
    }
    std::size_t still = 0;
    while (still + lowest < count) {
        const std::size_t i = count - 1 - still;
        const Frame& one = frames_[i];
        const std::byte* outwards = again_.data() + i * size;
        if (i && std::memcmp(outwards, outwards + count * size, size) != 0) break;
        const auto now = [&](std::size_t offset) { return word_at(outwards, offset - first); };
        // The innermost one may go on to its next instruction.
        const bool at_rest = now(layout_.frame.instruction) == one.instruction || (i == 0 && same_top);
        if (without_mark(now(layout_.frame.code)) != one.code || now(layout_.frame.caller) != one.caller ||
            !at_rest)
            break;
        ++still;
    }
    all = same_top && still == count;
    return still;
}

std::size_t StackReader::name_frames(OwnMemory& memory, std::size_t count, std::uint32_t& node) {
    const std::size_t head = names_.head_size();
    const std::size_t size = head + names_.text_head_size();
    const std::size_t from = frames_.size() - count;
    again_.assign(count * size, std::byte{});
    parts_.clear();
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t code = frames_[from + i].code;
        const std::uint64_t name = names_.name_of(code);
        parts_.push_back({again_.data() + i * size, code, head});
        if (name) parts_.push_back({again_.data() + i * size + head, name, size - head});
    }
    // A page that is gone spoils the call, and not what stands elsewhere.
    if (!memory.read(parts_))
        for (const MemoryPart& part : parts_)
            if (!memory.read({&part, 1})) std::memset(part.to, 0, part.size);
    std::size_t named = 0;
    for (; named < count; ++named) {
        const std::size_t i = count - 1 - named;
        const Frame& one = frames_[from + i];
        const std::byte* heads = again_.data() + i * size;
        auto code = names_.known(one.code, heads, heads + head);
        if (!code) {
            code = names_.learn(memory, one.code);
            std::uint64_t now = 0;
            // Learnt of a code that has come into its place while the frame was left?
            if (!code || !memory.read(now, one.at + layout_.frame.code) || without_mark(now) != one.code) {
                ++counts_.outlived;
                break;
            }
        }
        node = table_.node({node, *code, names_.line(one.code, one.instruction)});
    }
    return named;
}

}  // namespace dftrace
