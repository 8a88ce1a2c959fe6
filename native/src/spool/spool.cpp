// Creating a spool, handing out its units, and telling whether its process is alive.
#include "dftrace/spool/spool.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "dftrace/system/directory.hpp"
#include "dftrace/system/small_file.hpp"

namespace dftrace {

namespace {

// What /proc/PID/stat tells of a process; all zero when there is none.
struct ProcessState {
    char state = 0;             // field 3
    std::uint64_t threads = 0;  // field 20
    std::uint64_t start = 0;    // field 22
    int wait_status = 0;        // field 52, of a zombie that we may ask about
};

template <typename Number>
void take_number(std::string_view text, Number& number) noexcept {
    std::from_chars(text.data(), text.data() + text.size(), number);
}

ProcessState process_state(const char* process) noexcept {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%s/stat", process);
    const SmallFile file(path);
    // The command in parentheses may hold anything: fields are counted after its last one.
    const auto end = file.line().rfind(')');
    if (end == std::string_view::npos) return {};
    std::string_view rest = file.line().substr(end + 1);
    ProcessState found;
    for (int i = 3; i <= 52; ++i) {
        rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
        const std::string_view field = rest.substr(0, rest.find(' '));
        if (field.empty()) break;
        if (i == 3) found.state = field[0];
        if (i == 20) take_number(field, found.threads);
        if (i == 22) take_number(field, found.start);
        if (i == 52) take_number(field, found.wait_status);
        rest.remove_prefix(field.size());
    }
    return found;
}

ProcessState process_state(std::uint32_t pid) noexcept {
    char number[16];
    std::snprintf(number, sizeof number, "%u", pid);
    return process_state(number);
}

std::string read_boot_id() { return std::string(SmallFile("/proc/sys/kernel/random/boot_id").line()); }

// 0 where /proc does not say, or is that of another namespace, in which numbers mean other processes: it
// stays the outer one's where a container was made without mounting one of its own.
std::uint64_t own_pid_namespace() {
    char number[24] = "";
    if (readlink("/proc/self", number, sizeof number - 1) < 0 || number != std::to_string(getpid())) return 0;
    struct stat info;
    return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

// Maps all pages. Others may store there at this very moment, and lose nothing.
void map_pages(char* from, std::size_t bytes) noexcept {
#ifdef MADV_POPULATE_WRITE
    if (madvise(from, bytes, MADV_POPULATE_WRITE) == 0 || errno != EINVAL) return;
#endif
    // An older kernel has no such call.
    constexpr std::size_t page = 4096;
    for (std::size_t at = 0; at < bytes; at += page)
        std::atomic_ref(*reinterpret_cast<std::uint64_t*>(from + at)).fetch_or(0, std::memory_order_relaxed);
}

}  // namespace

void check_spool_header(const SpoolHeader& h) {
    if (h.magic != spool_magic) throw std::runtime_error("not a spool");
    if (h.version != spool_version)
        throw std::runtime_error("spool version " + std::to_string(h.version) +
                                 " is not known to this dftrace (it reads version " +
                                 std::to_string(spool_version) + ")");
    if (h.unit_size != unit_bytes || h.record_size != sizeof(Record)) throw std::runtime_error("not a spool");
}

std::vector<std::pair<std::string_view, std::uint32_t>> LatePlace::members() const {
    const std::uint32_t known = rank.load(std::memory_order_acquire);
    std::vector<std::pair<std::string_view, std::uint32_t>> found;
    if (!known) return found;
    found.emplace_back("rank", known - 1);
    if (const std::uint32_t size = world_size) found.emplace_back("world_size", size - 1);
    if (const std::uint32_t local = local_rank) found.emplace_back("local_rank", local - 1);
    return found;
}

std::vector<ClockSegment> clock_segments_of(const SpoolHeader& h) {
    const std::uint32_t total = h.clock_segments.load(std::memory_order_acquire);
    const std::uint32_t kept = std::min(total, max_clock_segments);
    std::vector<ClockSegment> segments;
    for (std::uint32_t i = total - kept; i != total; ++i)
        segments.push_back(h.clock[i == total - kept ? 0 : clock_slot(i)]);
    if (total > kept) {
        // Some behind the first are gone: it leads straight to the oldest that is there.
        ClockSegment& first = segments.front();
        const ClockSegment& next = segments[1];
        if (next.tick > first.tick && next.ns > first.ns)
            first.scale = static_cast<std::uint64_t>(
                (static_cast<unsigned __int128>(next.ns - first.ns) << 32) / (next.tick - first.tick));
    }
    return segments;
}

ProcessIdentity ProcessIdentity::self() {
    const auto pid = static_cast<std::uint32_t>(getpid());
    // Not by number, see above.
    return {pid, process_state("self").start, read_boot_id(), own_pid_namespace()};
}

ProcessIdentity ProcessIdentity::of(const SpoolHeader& h) {
    return {h.pid, h.process_start, {h.boot_id, strnlen(h.boot_id, sizeof h.boot_id)}, h.pid_namespace};
}

// Where /proc is not there to be asked, on either side, nothing is known of the boot.
bool ProcessIdentity::of_earlier_boot() const {
    const std::string now = read_boot_id();
    return !boot_id.empty() && !now.empty() && boot_id != now;
}

bool ProcessIdentity::elsewhere() const {
    const std::uint64_t own = own_pid_namespace();
    return !of_earlier_boot() && (own == 0 || pid_namespace != own);
}

bool ProcessIdentity::is_this_one() const {
    const ProcessIdentity own = self();
    return pid == own.pid && start == own.start && boot_id == own.boot_id &&
           pid_namespace == own.pid_namespace;
}

bool ProcessIdentity::gone() const {
    if (of_earlier_boot()) return true;
    if (elsewhere()) return false;
    const ProcessState now = process_state(pid);
    // One that cannot be looked at may live: /proc may hide it, or there is no number to open a file under.
    if (now.state == 0) return kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH;
    if (start != 0 && now.start != 0 && now.start != start) return true;
    // A zombie has ended: its parent only has not asked for its status yet. With other threads it
    // is only the first thread that has.
    return now.state == 'X' || (now.state == 'Z' && now.threads <= 1);
}

ProcessEnd ProcessEnd::of(const ProcessIdentity& process) {
    if (process.of_earlier_boot()) return {true};
    if (process.elsewhere()) return {};
    const ProcessState now = process_state(process.pid);
    if (now.state != 'Z' || now.start != process.start || now.wait_status == 0) return {};
    if (WIFSIGNALED(now.wait_status)) return {false, WTERMSIG(now.wait_status)};
    return {false, 0, WEXITSTATUS(now.wait_status)};
}

Spool::Spool(std::string path, std::size_t limit_bytes, const Beginning& beginning)
    : path_(std::move(path)), limit_bytes_(std::max(limit_bytes / unit_bytes, std::size_t{4}) * unit_bytes) {
    free_.reserve(most_units());
    const ProcessIdentity self = ProcessIdentity::self();
    int error = make(true, self, beginning);
    // Not every file system has files without a name, and not every container a /proc by which to name them.
    if (error && error != EEXIST) error = make(false, self, beginning);
    if (error) throw std::system_error(error, std::generic_category(), path_);
    try {
        directory_.open(directory_of(path_), base_);
    } catch (const std::bad_alloc&) {
        // Then it is found by its name alone.
    }
}

// 0 or an errno.
int Spool::make(bool nameless, const ProcessIdentity& self, const Beginning& beginning) {
    refused_.store(0, std::memory_order_relaxed);
    int error =
        nameless ? file_.create_nameless(directory_of(path_), O_RDWR) : file_.create_new(path_, O_RDWR);
    if (error) return error;
    // Held for life, and let go by the kernel at the end of it, however it ends: who cannot look for the
    // process, being in another container, sees by this that it lives. It goes with the mapping, not with
    // the number of the file, which the program may close.
    flock(file_.descriptor(), LOCK_SH | LOCK_NB);
    error = map();
    if (!error) {
        SpoolHeader& h = header();
        h.version = spool_version;
        h.unit_size = unit_bytes;
        h.record_size = sizeof(Record);
        h.pid = self.pid;
        h.process_start = self.start;
        h.pid_namespace = self.pid_namespace;
        std::strncpy(h.boot_id, self.boot_id.c_str(), sizeof h.boot_id - 1);
        h.units.store(1, std::memory_order_relaxed);
        if (beginning) beginning(h);
        // The magic goes last: a header without it was never finished.
        std::atomic_thread_fence(std::memory_order_release);
        h.magic = spool_magic;
        if (nameless) error = file_.take_name(path_);
        if (!error) return 0;
        munmap(std::exchange(base_, nullptr), limit_bytes_);
    }
    unlink();
    file_.close();
    return error;
}

// 0 or an errno.
int Spool::map() noexcept {
    if (const int error = reserve(0, unit_bytes)) return error;
    void* mapped = mmap(nullptr, limit_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                        file_.descriptor(), 0);
    if (mapped == MAP_FAILED) return errno;
    base_ = static_cast<char*>(mapped);
    return 0;
}

Spool::~Spool() {
    if (base_) munmap(base_, limit_bytes_);
}

// Reserves space; 0 or an errno.
int Spool::reserve(std::size_t from, std::size_t bytes) noexcept {
    int error = file_.reserve(from, bytes);
    // The program has closed what is not its own, and may do so again this very moment, but not for ever.
    for (int attempt = 0; error == EBADF && attempt < 8; ++attempt) {
        error = open_again();
        if (!error) error = file_.reserve(from, bytes);
    }
    if (error) refused_.store(error, std::memory_order_relaxed);
    return error;
}

// 0 or an errno.
int Spool::open_again() noexcept {
    const int error = file_.open_again(path_, O_RDWR);
    if (error == 0 || error == EBADF) return error;
    try {
        // Renamed with its directory, perhaps. The one that is held is the drain thread's.
        const std::string moved_to = directory_of_mapping(base_);
        const std::string name = name_in_directory(path_);
        return moved_to.empty() ? error : file_.open_again(moved_to + "/" + name, O_RDWR);
    } catch (const std::bad_alloc&) {
        return error;
    }
}

int Spool::descriptor() noexcept {
    std::lock_guard lock(mutex_);
    if (file_.descriptor() < 0) static_cast<void>(open_again());
    return file_.descriptor();
}

// In this order: should the process die here, no record is taken for a new one. And a reader that looks
// meanwhile sees the unit as it was or as it is to be.
void UnitHeader::start_over() noexcept {
    const std::uint64_t so_far = before.load(std::memory_order_relaxed);
    before.store(so_far | starting_over, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    committed.store(0, std::memory_order_release);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    consumed = pending = 0;
    pending_write = 0;
    before.store(so_far + capacity, std::memory_order_release);
}

UnitHeader* Spool::acquire(UnitKind kind, std::uint32_t owner, std::uint32_t units, std::uint64_t before) {
    std::lock_guard lock(mutex_);
    std::uint32_t index = 0;
    if (units == 1 && !free_.empty()) {
        index = free_.back();
        free_.pop_back();
    } else if (units > 1) {
        index = take_free_run(units);
    }
    if (!index) {
        const std::size_t end = (std::size_t{used_units_} + units) * unit_bytes;
        if (end > limit_bytes_) return nullptr;
        if (used_units_ + units > prepared_units_) {
            if (reserve(std::size_t{used_units_} * unit_bytes, std::size_t{units} * unit_bytes) != 0)
                return nullptr;
#ifdef MADV_POPULATE_WRITE
            // One call maps all pages; page by page the traced thread would fault on each.
            madvise(unit(used_units_), std::size_t{units} * unit_bytes, MADV_POPULATE_WRITE);
#endif
        }
        index = used_units_;
        used_units_ += units;
    }
    UnitHeader* u = unit(index);
    // A reader must not take half a header for a whole one, nor for one that still holds what it held.
    u->kind = UnitKind::free;
    u->owner = 0;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    u->committed.store(0, std::memory_order_relaxed);
    u->consumed = u->pending = u->left = 0;
    u->pending_write = 0;
    u->next.store(0, std::memory_order_relaxed);
    u->before.store(before, std::memory_order_relaxed);
    u->units = units;
    u->sequence = next_sequence_++;
    u->magic = unit_magic;
    if (kind == UnitKind::thread)
        u->capacity = static_cast<std::uint32_t>((unit_bytes - thread_block_bytes) / sizeof(Record));
    else if (kind == UnitKind::ring)
        u->capacity = static_cast<std::uint32_t>((unit_bytes - sizeof(UnitHeader)) / sizeof(Record));
    else
        u->capacity = static_cast<std::uint32_t>(std::size_t{units} * unit_bytes - sizeof(UnitHeader));
    // The records that were here would be taken for open spans, should the process die right now.
    if (kind == UnitKind::thread) std::memset(blobs_of(u), 0, thread_block_bytes - sizeof(UnitHeader));
    std::atomic_thread_fence(std::memory_order_release);
    u->owner = owner;
    std::atomic_thread_fence(std::memory_order_release);
    u->kind = kind;
    header().units.store(used_units_, std::memory_order_release);
    return u;
}

// First of `units` neighbours that were released, or 0. Without it, arguments of more than one unit
// would use the spool up, however many of them are released.
std::uint32_t Spool::take_free_run(std::uint32_t units) {
    std::sort(free_.begin(), free_.end());
    for (std::size_t first = 0; first + units <= free_.size(); ++first) {
        const std::uint32_t index = free_[first];
        if (free_[first + units - 1] - index != units - 1) continue;
        const auto begin = free_.begin() + static_cast<std::ptrdiff_t>(first);
        free_.erase(begin, begin + units);
        return index;
    }
    return 0;
}

// The list of free units has had room for all of them from the beginning on.
void Spool::release(UnitHeader* first) noexcept {
    std::lock_guard lock(mutex_);
    const std::uint32_t index = index_of(first);
    const std::uint32_t units = first->units;
    // A long run comes back as single units, so that a reader finds a header in each: from the last
    // on, since a reader that finds no header yet in the first one goes by its length.
    for (std::uint32_t i = units; i-- > 0;) {
        UnitHeader* u = unit(index + i);
        u->kind = UnitKind::free;
        u->units = 1;
        u->magic = unit_magic;
        free_.push_back(index + i);
    }
}

bool Spool::holds(const UnitHeader* unit, std::uint64_t sequence) noexcept {
    std::lock_guard lock(mutex_);
    return unit->kind != UnitKind::free && unit->sequence == sequence;
}

void Spool::store_again() noexcept {
    file_.close();
    if (file_.create_new(path_, O_RDWR)) return;
    const std::lock_guard lock(mutex_);
    const std::size_t bytes = std::size_t{used_units_} * unit_bytes;
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t wrote = write(file_.descriptor(), base_ + done, bytes - done);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote <= 0) break;
        done += static_cast<std::size_t>(wrote);
    }
    if (done < bytes) unlink();  // a half would be taken for damage
}

std::string Spool::place() const {
    if (file_.lies_at(path_.c_str())) return path_;
    // Of a file that was made without a name the kernel tells no other.
    if (moved_along()) return directory_.path_now() + "/" + name_in_directory(path_);
    return removed() ? std::string() : path_;
}

int Spool::look() const noexcept {
    const int error = file_.identity().look_at(path_.c_str());
    if (error == 0) return 0;
    const int beside = file_.identity().look_at(name_in_directory(path_), directory_.descriptor());
    return beside == ENOENT ? error : beside;
}

int Spool::unlink() noexcept {
    if (removed()) return 0;
    if (const int unseen = look()) return unseen;
    const int done = moved_along() ? ::unlinkat(directory_.descriptor(), name_in_directory(path_), 0)
                                   : ::unlink(path_.c_str());
    return done == 0 ? 0 : errno;
}

void Spool::abandon() noexcept {
    munmap(base_, limit_bytes_);
    file_.close();
    directory_.close();
    base_ = nullptr;
}

// Room for units that nobody needs yet.
void Spool::prepare(std::uint32_t wanted) noexcept {
    // So many times at most: a thread may take them as fast as they are made, and there is other work to do.
    for (std::uint32_t made = 0; made < wanted; ++made)
        if (!prepare_one(wanted)) return;
}

// False where there is enough, or no more is to be had.
bool Spool::prepare_one(std::uint32_t wanted) noexcept {
    std::uint32_t index;
    int file;
    {
        const std::lock_guard lock(mutex_);
        index = std::max(prepared_units_, used_units_);
        if (free_.size() + (index - used_units_) >= wanted) return false;
        if ((std::size_t{index} + 1) * unit_bytes > limit_bytes_) return false;
        file = file_.descriptor();
    }
    // Without the lock, for which who records would wait. Should that one take the unit meanwhile, it has
    // reserved it as well, which is no harm.
    const std::size_t from = std::size_t{index} * unit_bytes;
    if (file < 0 || reserve_room_in_use(file, from, unit_bytes) != 0) return false;
    map_pages(base_ + from, unit_bytes);
    const std::lock_guard lock(mutex_);
    prepared_units_ = std::max(prepared_units_, index + 1);
    return true;
}

void Spool::give_back_prepared() noexcept {
    for (;;) {
        // One at a time: who records may want the lock. With it, since what is taken must not be let go.
        const std::lock_guard lock(mutex_);
        if (prepared_units_ <= used_units_) return;
        // By the mapping, not by the number of the file, which may be somebody else's by now. Not every file
        // system lets go of a part of a file: there it stays, for whoever needs it.
        if (madvise(unit(prepared_units_ - 1), unit_bytes, MADV_REMOVE) != 0) return;
        --prepared_units_;
    }
}

}  // namespace dftrace
