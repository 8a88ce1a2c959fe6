// Mapping a spool and walking over its units.
#include "dftrace/spool_view.hpp"

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

// Delegates, so that a file that is refused is closed again.
SpoolView::SpoolView(const std::string& path) : SpoolView() {
    if (const int error = file_.open(path, O_RDWR)) throw std::runtime_error(std::strerror(error));
    struct stat info;
    if (fstat(file_.descriptor(), &info) != 0) throw std::runtime_error(std::strerror(errno));
    if (!S_ISREG(info.st_mode) || info.st_size < static_cast<off_t>(unit_bytes))
        throw std::runtime_error("not a spool");
    owner_ = info.st_uid;
    group_ = info.st_gid;
    units_ = static_cast<std::uint32_t>(
        std::min<std::size_t>(static_cast<std::size_t>(info.st_size) / unit_bytes, UINT32_MAX));
    void* mapped = mmap(nullptr, std::size_t{units_} * unit_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                        file_.descriptor(), 0);
    if (mapped == MAP_FAILED) throw std::runtime_error(std::strerror(errno));
    base_ = static_cast<char*>(mapped);
    check_spool_header(header());
}

SpoolView::~SpoolView() {
    if (base_) munmap(base_, std::size_t{units_} * unit_bytes);
}

bool SpoolView::lock() noexcept { return flock(file_.descriptor(), LOCK_EX | LOCK_NB) == 0; }

bool SpoolView::removed() const noexcept {
    struct stat info;
    return fstat(file_.descriptor(), &info) == 0 && info.st_nlink == 0;
}

std::vector<UnitHeader*> SpoolView::units(std::vector<std::string>& damage) {
    std::vector<UnitHeader*> found;
    const std::uint32_t claimed = header().units.load();
    const std::uint32_t used = std::min(claimed, units_);
    if (claimed > units_) damage.push_back(counted(claimed - units_, "unit") + " cut off at the end");
    std::uint32_t broken = 0;
    for (std::uint32_t i = 1; i < used;) {
        auto* unit = reinterpret_cast<UnitHeader*>(base_ + std::size_t{i} * unit_bytes);
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
            ++i;
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
    return process.gone() || process.elsewhere();
}

}  // namespace dftrace
