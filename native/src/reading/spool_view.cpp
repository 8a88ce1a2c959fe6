// Copying a spool and walking over its units.
#include "dftrace/reading/spool_view.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "dftrace/system/file_size_signal.hpp"

namespace dftrace {

namespace {

bool sound(const UnitHeader& unit) {
    const std::size_t bytes = std::size_t{unit.units} * unit_bytes;
    switch (unit.kind) {
        case UnitKind::thread:
            return unit.units == 1 && unit.capacity <= (unit_bytes - thread_block_bytes) / sizeof(Record);
        case UnitKind::ring:
            return unit.units == 1 && unit.capacity <= (unit_bytes - sizeof(UnitHeader)) / sizeof(Record);
        case UnitKind::names:
        case UnitKind::arguments: return unit.capacity <= bytes - sizeof(UnitHeader);
        case UnitKind::free: break;
    }
    return false;
}

std::string counted(std::size_t number, std::string_view noun) {
    return std::to_string(number) + " " + std::string(noun) + (number == 1 ? "" : "s");
}

}  // namespace

SpoolView::SpoolView(const std::string& path)
    : place_(std::in_place, directory_of(path)), name_(name_in_directory(path)) {
    if (const int error = file_.open(name_, O_RDWR, place_->descriptor()))
        throw std::runtime_error(std::strerror(error));
    if (fstat(file_.descriptor(), &found_) != 0) throw std::runtime_error(std::strerror(errno));
    if (!S_ISREG(found_.st_mode) || found_.st_size < static_cast<off_t>(unit_bytes))
        throw std::runtime_error("not a spool");
    units_ = static_cast<std::uint32_t>(
        std::min<std::size_t>(static_cast<std::size_t>(found_.st_size) / unit_bytes, UINT32_MAX));
    reserve_memory();
}

SpoolView::SpoolView(const char* memory, std::size_t bytes)
    : own_(memory), units_(static_cast<std::uint32_t>(bytes / unit_bytes)) {
    reserve_memory();
}

void SpoolView::reserve_memory() {
    // As long as the file, so that a unit lies here where it lies there. Memory is taken only by what is
    // copied.
    void* memory = mmap(nullptr, std::size_t{units_} * unit_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
    base_ = static_cast<char*>(memory);
    try {
        copy_header();
    } catch (...) {
        forget();
        throw;
    }
}

SpoolView::~SpoolView() { forget(); }

void SpoolView::forget() noexcept {
    if (base_) munmap(base_, std::size_t{units_} * unit_bytes);
}

bool SpoolView::lock() {
    if (flock(file_.descriptor(), LOCK_EX | LOCK_NB) != 0) return false;
    copy_header();
    return true;
}

bool SpoolView::removed() const noexcept {
    struct stat info;
    return fstat(file_.descriptor(), &info) == 0 && info.st_nlink == 0;
}

bool SpoolView::has_other_names() const noexcept { return found_.st_nlink > 1; }

int SpoolView::remove() const noexcept { return place_->remove_if(name_.c_str(), found_); }

bool SpoolView::copy(std::size_t from, std::size_t bytes) {
    if (own_) {
        std::memcpy(base_ + from, own_ + from, bytes);
        return true;
    }
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t got =
            pread(file_.descriptor(), base_ + from + done, bytes - done, static_cast<off_t>(from + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw std::runtime_error(std::strerror(errno));
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    cut_ |= done < bytes;
    return done == bytes;
}

void SpoolView::copy_header() {
    if (!copy(0, unit_bytes)) throw std::runtime_error("not a spool");
    check_spool_header(header());
}

int SpoolView::keep(const void* piece, std::size_t bytes) noexcept {
    const FileSizeSignalHeld held;
    const char* from = static_cast<const char*>(piece);
    std::size_t done = 0;
    while (done < bytes) {
        const ssize_t put =
            pwrite(file_.descriptor(), from + done, bytes - done, static_cast<off_t>(from + done - base_));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        done += static_cast<std::size_t>(put);
    }
    return 0;
}

void SpoolView::load(UnitHeader* unit) {
    const auto at = static_cast<std::size_t>(reinterpret_cast<const char*>(unit) - base_);
    const std::size_t count = std::min(unit->committed.load(), unit->capacity);
    const bool records = unit->kind == UnitKind::thread || unit->kind == UnitKind::ring;
    const std::size_t skip = unit->kind == UnitKind::thread ? thread_block_bytes : sizeof(UnitHeader);
    if (records) {
        copy(at + sizeof(UnitHeader), skip - sizeof(UnitHeader) + count * sizeof(Record));
        return;
    }
    const std::size_t written = copy_text(at + sizeof(UnitHeader), count);
    if (written < count) unit->committed.store(static_cast<std::uint32_t>(written));
    hollow_ += written < count && !cut_;  // a cut is told as such
}

// As far as anything was written: a unit may say that it is of gigabytes, and be a hole. Neither names nor
// arguments hold zeros.
std::size_t SpoolView::copy_text(std::size_t from, std::size_t bytes) {
    constexpr std::size_t page = 4096, most = 1u << 20;
    std::size_t done = 0;
    for (std::size_t step = page; done < bytes; step = std::min(2 * step, most)) {
        const std::size_t end = std::min(done + step, bytes);
        if (!copy(from + done, end - done)) return end;
        for (; done + page <= end; done += page) {
            const char* text = base_ + from + done;
            if (*text == 0 && std::memcmp(text, text + 1, page - 1) == 0) return done;
        }
        done = end;
    }
    return bytes;
}

void SpoolView::let_go(UnitHeader* unit) noexcept {
    static const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t kept = unit->kind == UnitKind::thread ? thread_block_bytes : sizeof(UnitHeader);
    const std::size_t from = (kept + page - 1) / page * page;
    // Read again these pages are zero, and nobody reads them.
    if (from < unit_bytes) madvise(reinterpret_cast<char*>(unit) + from, unit_bytes - from, MADV_DONTNEED);
}

// A file may be far longer than what it takes of the disk.
std::uint32_t SpoolView::next_with_data(std::uint32_t index) const noexcept {
    if (own_) return index;
    const off_t data =
        lseek(file_.descriptor(), static_cast<off_t>(std::size_t{index} * unit_bytes), SEEK_DATA);
    if (data < 0) return errno == ENXIO ? units_ : index;
    return static_cast<std::uint32_t>(static_cast<std::size_t>(data) / unit_bytes);
}

std::vector<UnitHeader*> SpoolView::units(std::vector<std::string>& damage) {
    std::vector<UnitHeader*> found;
    const std::uint32_t claimed = header().units.load();
    const std::uint32_t used = std::min(claimed, units_);
    if (claimed > units_) damage.push_back(counted(claimed - units_, "unit") + " cut off at the end");
    std::uint32_t broken = 0;
    for (std::uint32_t i = 1; i < used;) {
        const std::size_t at = std::size_t{i} * unit_bytes;
        copy(at, sizeof(UnitHeader));
        auto* unit = reinterpret_cast<UnitHeader*>(base_ + at);
        const bool whole = unit->magic == unit_magic && unit->units != 0 && unit->units <= used - i;
        // A unit that is just being taken has no header yet, or one of a kind that says "free".
        const bool blank = unit->magic == 0 && unit->kind == UnitKind::free;
        if (whole && unit->kind == UnitKind::free) {
            i += unit->units;
            continue;
        }
        if (whole && sound(*unit)) {
            found.push_back(unit);
            i += unit->units;
        } else {
            broken += !blank;
            i = next_with_data(i + 1);
        }
    }
    if (broken) damage.push_back(counted(broken, "unit") + " without a sound header");
    std::sort(found.begin(), found.end(),
              [](const UnitHeader* a, const UnitHeader* b) { return a->sequence < b->sequence; });
    return found;
}

TraceSettings SpoolView::settings() const {
    const SpoolHeader& h = header();
    return TraceSettings::decode({h.settings, std::min<std::size_t>(h.settings_bytes, sizeof h.settings)});
}

ClockMap SpoolView::clock() const {
    std::vector<ClockSegment> segments = clock_segments_of(header());
    if (segments.empty()) throw std::runtime_error("the spool has no clock");
    return ClockMap::from_segments(std::move(segments));
}

bool SpoolView::process_gone() const {
    const ProcessIdentity process = ProcessIdentity::of(header());
    // What this process was before it became another program by exec is gone, too; of what it is now the lock
    // is held.
    return process.gone() || process.elsewhere() || process.is_this_one();
}

}  // namespace dftrace
