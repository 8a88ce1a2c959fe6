// Copying until two copies agree.
#include "dftrace/reading/spool_copy.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

#include "dftrace/text/json_check.hpp"

namespace dftrace {

namespace {

// Copies until two agree, or until it has to do without.
constexpr int attempts = 16;
// A file that claims to be larger than any spool's first 128 GiB is not walked to its end.
constexpr std::uint64_t max_units = std::uint64_t{1} << 21;
constexpr std::uint32_t max_run_units = 64;         // copied of one run, 4 MiB
constexpr std::size_t max_text_bytes = 256 * 1024;  // of one name or snapshot
constexpr std::size_t max_texts_bytes = 32u << 20;  // of all that are asked for
constexpr std::uint32_t thread_capacity = (unit_bytes - thread_block_bytes) / sizeof(Record);
constexpr std::uint32_t ring_capacity = (unit_bytes - sizeof(UnitHeader)) / sizeof(Record);

// The part of a ThreadBlock before its open spans.
struct ThreadHead {
    std::array<char, sizeof(UnitHeader)> unit;
    std::uint32_t tid;
    std::uint32_t ended;
    std::uint32_t depth;
    std::uint32_t task_slots;
    char name[sizeof ThreadBlock::name];
};
static_assert(sizeof(ThreadHead) == offsetof(ThreadBlock, open));

std::uint64_t place_of(std::uint32_t index) { return std::uint64_t{index} * unit_bytes; }

bool same(const OpenSpan& a, const OpenSpan& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

bool UnitFacts::may_hold_records() const noexcept {
    if (kind == UnitKind::thread) return units == 1 && capacity == thread_capacity;
    if (kind == UnitKind::ring) return units == 1 && capacity == ring_capacity;
    // One that was released, and not used again, still holds what it held.
    return kind == UnitKind::free && owner != 0 && units == 1 &&
           (capacity == thread_capacity || capacity == ring_capacity);
}

SpoolCopy::SpoolCopy() : header_(std::make_unique<Page>()) {}

// Delegates, so that a file that is refused is closed again.
SpoolCopy::SpoolCopy(const std::string& path) : SpoolCopy() {
    look_at_file(path, file_.open(path, O_RDONLY));
}

SpoolCopy::SpoolCopy(int descriptor) : SpoolCopy() {
    borrowed_ = descriptor;
    look_at_file("spool", descriptor < 0 ? EBADF : 0);
}

void SpoolCopy::look_at_file(const std::string& path, int error) {
    struct stat info;
    if (!error && fstat(descriptor(), &info) != 0) error = errno;
    if (error) throw std::system_error(error, std::generic_category(), path);
    if (!S_ISREG(info.st_mode)) throw std::runtime_error("not a spool");
    copy_header();
    check_spool_header(header());
    if (static_cast<std::uint64_t>(info.st_size) < unit_bytes) throw std::runtime_error("not a spool");
}

std::size_t SpoolCopy::read(std::uint64_t offset, void* into, std::size_t bytes) const noexcept {
    const int fd = descriptor();
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t got =
            pread(fd, static_cast<char*>(into) + done, bytes - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        done += static_cast<std::size_t>(got);
    }
    // What is copied next is not older than this.
    std::atomic_thread_fence(std::memory_order_acquire);
    return done;
}

// The clock may be told anew while it is copied.
void SpoolCopy::copy_header() {
    const auto again = std::make_unique<Page>();
    constexpr std::size_t clock_at = offsetof(SpoolHeader, clock_segments);
    constexpr std::size_t clock_bytes = offsetof(SpoolHeader, trace_paths) - clock_at;
    for (int attempt = 0; attempt < attempts; ++attempt) {
        const std::size_t got = read(0, header_->bytes.data(), unit_bytes);
        std::fill(header_->bytes.begin() + static_cast<std::ptrdiff_t>(got), header_->bytes.end(), '\0');
        const std::size_t told = read(clock_at, again->bytes.data(), clock_bytes);
        if (told < clock_bytes ||
            std::memcmp(again->bytes.data(), header_->bytes.data() + clock_at, clock_bytes) == 0)
            break;
    }
}

ClockMap SpoolCopy::clock() const {
    std::vector<ClockSegment> segments = clock_segments_of(header());
    // What lies before a step back is damaged, or was being replaced.
    for (std::size_t i = segments.size(); i-- > 1;) {
        if (segments[i - 1].tick < segments[i].tick && segments[i - 1].ns < segments[i].ns) continue;
        segments.erase(segments.begin(), segments.begin() + static_cast<std::ptrdiff_t>(i));
        break;
    }
    if (segments.empty() || segments.back().scale == 0) throw std::runtime_error("the spool has no clock");
    return ClockMap::from_segments(std::move(segments));
}

std::optional<UnitFacts> SpoolCopy::unit(std::uint32_t index) const {
    alignas(UnitHeader) std::array<char, sizeof(UnitHeader)> bytes;
    if (read(place_of(index), bytes.data(), bytes.size()) < bytes.size()) return std::nullopt;
    const auto* head = reinterpret_cast<const UnitHeader*>(bytes.data());
    if (head->magic != unit_magic || head->units == 0) return std::nullopt;
    UnitFacts facts;
    facts.index = index;
    facts.kind = head->kind;
    facts.owner = head->owner;
    facts.units = head->units;
    facts.sequence = head->sequence;
    facts.capacity = head->capacity;
    facts.committed = std::min(head->committed.load(), head->capacity);
    facts.consumed = std::min(head->consumed, facts.committed);
    facts.next = head->next.load();
    const std::uint64_t before = head->before.load();
    facts.before = before & ~starting_over;
    if (before & starting_over) facts.committed = facts.consumed = facts.capacity;
    return facts;
}

std::vector<UnitFacts> SpoolCopy::units() const {
    std::vector<UnitFacts> found;
    // As many as there are by now: the file may have grown since its header was copied.
    struct stat info;
    std::uint32_t used = 0;
    if (fstat(descriptor(), &info) != 0 ||
        read(offsetof(SpoolHeader, units), &used, sizeof used) < sizeof used)
        return found;
    const auto end = static_cast<std::uint32_t>(
        std::min({std::uint64_t{used}, static_cast<std::uint64_t>(info.st_size) / unit_bytes, max_units}));
    for (std::uint32_t i = 1; i < end;) {
        const std::optional<UnitFacts> facts = unit(i);
        const bool whole = facts && facts->units <= end - i;
        if (whole && (facts->kind != UnitKind::free || facts->may_hold_records())) found.push_back(*facts);
        // The units of a run hold text, which must not be taken for headers.
        i = whole ? i + facts->units : after(i);
    }
    return found;
}

// The next unit of which the file has any bytes: a file may be far larger than what it takes of the disk.
std::uint32_t SpoolCopy::after(std::uint32_t index) const {
    const off_t data = lseek(descriptor(), static_cast<off_t>(place_of(index + 1)), SEEK_DATA);
    if (data < 0) return errno == ENXIO ? UINT32_MAX : index + 1;
    return static_cast<std::uint32_t>(
        std::min<std::uint64_t>(static_cast<std::uint64_t>(data) / unit_bytes, UINT32_MAX));
}

std::optional<StackCopy> SpoolCopy::stack(const UnitFacts& thread_unit) const {
    const std::uint64_t place = place_of(thread_unit.index);
    ThreadHead head{};
    std::vector<OpenSpan> open, before;
    bool agree = false;
    for (int attempt = 0; attempt < attempts && !agree; ++attempt) {
        const std::uint32_t depth = head.depth;
        before.swap(open);
        if (read(place, &head, sizeof head) < sizeof head) return std::nullopt;
        open.resize(std::min(head.depth, max_open_spans));
        const std::size_t bytes = open.size() * sizeof(OpenSpan);
        if (read(place + sizeof head, open.data(), bytes) < bytes) return std::nullopt;
        agree = attempt > 0 && depth == head.depth && std::ranges::equal(open, before, same);
    }
    StackCopy copy;
    copy.depth = head.depth;
    if (!agree) {
        // The thread is too fast for it. What is outermost has been there all the time.
        const auto [end, other] = std::ranges::mismatch(open, before, same);
        open.erase(end, open.end());
        copy.depth = static_cast<std::uint32_t>(open.size());
    }
    for (const OpenSpan& span : open) {
        // Killed while a span was taken off the middle: the one above it stands there twice.
        if (!span.live || (!copy.open.empty() && copy.open.back().id == span.id)) continue;
        copy.open.push_back(span);
    }
    copy.tasks =
        settled_slots(place + offsetof(ThreadBlock, tasks), std::min(head.task_slots, max_open_task_spans));
    const std::optional<UnitFacts> now = unit(thread_unit.index);
    if (!now || now->kind != UnitKind::thread || now->sequence != thread_unit.sequence) return std::nullopt;
    copy.tid = head.tid;
    copy.ended = head.ended != 0;
    copy.name.assign(head.name, strnlen(head.name, sizeof head.name));
    return copy;
}

std::vector<OpenSpan> SpoolCopy::standing(const UnitFacts& thread_unit) const {
    return settled_slots(place_of(thread_unit.index) + offsetof(ThreadBlock, open), max_open_spans);
}

// Each slot for itself: tasks come and go in any order.
std::vector<OpenSpan> SpoolCopy::settled_slots(std::uint64_t at, std::uint32_t slots) const {
    std::vector<OpenSpan> now(slots), before;
    const std::size_t bytes = now.size() * sizeof(OpenSpan);
    std::vector<bool> settled(now.size(), false);
    bool all = now.empty();
    for (int attempt = 0; attempt < attempts && !all; ++attempt) {
        before = now;
        if (read(at, now.data(), bytes) < bytes) return {};
        all = true;
        for (std::size_t i = 0; i < now.size(); ++i) {
            settled[i] = attempt > 0 && same(now[i], before[i]);
            all = all && settled[i];
        }
    }
    std::vector<OpenSpan> found;
    for (std::size_t i = 0; i < now.size(); ++i)
        if (settled[i] && now[i].live) found.push_back(now[i]);
    return found;
}

std::optional<UnitFacts> SpoolCopy::records(const UnitFacts& wanted, std::vector<Record>& into) const {
    const std::size_t skip = wanted.capacity == thread_capacity ? thread_block_bytes : sizeof(UnitHeader);
    for (int attempt = 0; attempt < 2; ++attempt) {
        const std::optional<UnitFacts> before = unit(wanted.index);
        if (!before || before->sequence != wanted.sequence || !before->may_hold_records())
            return std::nullopt;
        into.resize(before->committed);
        const std::size_t bytes = into.size() * sizeof(Record);
        if (read(place_of(wanted.index) + skip, into.data(), bytes) < bytes) return std::nullopt;
        const std::optional<UnitFacts> after = unit(wanted.index);
        if (after && after->same_use(*before)) return before;
    }
    return std::nullopt;
}

void SpoolCopy::fill_names(const std::vector<UnitFacts>& all, Texts& wanted) const {
    fill(all, UnitKind::names, wanted);
}

void SpoolCopy::fill_arguments(const std::vector<UnitFacts>& all, Texts& wanted) const {
    fill(all, UnitKind::arguments, wanted);
}

void SpoolCopy::fill(const std::vector<UnitFacts>& all, UnitKind kind, Texts& wanted) const {
    const bool names = kind == UnitKind::names;
    std::size_t missing = wanted.size();
    std::size_t held = 0;
    std::vector<char> bytes;
    // From the newest on: most of what is asked for was stored just now.
    std::vector<const UnitFacts*> units;
    for (const UnitFacts& facts : all)
        if (facts.kind == kind) units.push_back(&facts);
    std::ranges::sort(units, std::greater<>{}, &UnitFacts::sequence);
    for (const UnitFacts* listed : units) {
        if (missing == 0) return;
        const std::optional<UnitFacts> facts = unit(listed->index);
        if (!facts || facts->kind != kind || facts->sequence != listed->sequence) continue;
        const std::size_t room = std::size_t{std::min(listed->units, max_run_units)} * unit_bytes;
        const std::size_t committed = std::min<std::size_t>(facts->committed, room - sizeof(UnitHeader));
        bytes.resize(committed);
        if (read(place_of(listed->index) + sizeof(UnitHeader), bytes.data(), committed) < committed) continue;
        const std::optional<UnitFacts> after = unit(listed->index);
        if (!after || !after->same_use(*facts) || after->kind != kind) continue;
        for (std::size_t at = 0; at + sizeof(BlobHeader) <= committed;) {
            BlobHeader blob;
            std::memcpy(&blob, bytes.data() + at, sizeof blob);
            if (blob.bytes > committed - at - sizeof blob) break;
            const std::string_view text(bytes.data() + at + sizeof blob, blob.bytes);
            at += (sizeof blob + std::size_t{blob.bytes} + 7) & ~std::size_t{7};
            if (blob.kind != (names ? BlobKind::name : BlobKind::arguments)) continue;
            const auto it = wanted.find(blob.id);
            if (it == wanted.end() || !it->second.empty() || text.empty()) continue;
            if (text.size() > max_text_bytes || held + text.size() > max_texts_bytes) continue;
            if (names ? !is_json_name(text) : !is_json_members(text)) continue;
            it->second = text;
            held += text.size();
            --missing;
        }
    }
}

bool SpoolCopy::held() const noexcept {
    if (flock(descriptor(), LOCK_EX | LOCK_NB) != 0) return true;
    flock(descriptor(), LOCK_UN);
    return false;
}

}  // namespace dftrace
