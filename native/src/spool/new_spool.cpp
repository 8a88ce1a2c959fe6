// Where a spool finds room, and what it says from its first moment on.
#include "dftrace/spool/new_spool.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "dftrace/system/directory.hpp"
#include "dftrace/system/held_file.hpp"

namespace dftrace {

namespace {

std::uint64_t room(const std::string& directory) {
    struct statvfs info;
    return statvfs(directory.c_str(), &info) == 0 && access(directory.c_str(), W_OK) == 0
               ? std::uint64_t{info.f_bavail} * info.f_frsize
               : 0;
}

constexpr char memory[] = "/dev/shm";

std::vector<std::string> directories_on_disk(const TraceSettings& settings) {
    const std::string own = directory_of(settings.prefix);
    if (is_network_file_system(own)) return {"/tmp", own};
    return {own, "/tmp"};
}

// Memory first (a disk's write-back makes each page fault again), a local disk next.
std::vector<std::string> first_directories(const TraceSettings& settings) {
    if (!settings.spool_dir.empty()) return {settings.spool_dir};
    // Where data loaders hand over their tensors, and small in many containers: it is taken only where a full
    // spool would leave them as much again.
    if (room(memory) >= 2 * std::uint64_t{settings.spool_bytes}) return {memory};
    return directories_on_disk(settings);
}

// The settings for the spool. A very long command line is left out: it may be in the trace already,
// and without the settings nobody could complete it.
std::string settings_that_fit(TraceSettings settings, std::size_t bytes) {
    std::string encoded = settings.encode();
    for (std::string TraceSettings::*text :
         {&TraceSettings::command_json, &TraceSettings::header_json, &TraceSettings::cwd_json}) {
        if (encoded.size() <= bytes) break;
        (settings.*text).clear();
        encoded = settings.encode();
    }
    return encoded.size() <= bytes ? encoded : std::string();
}

// What whoever finds the spool needs to complete the trace.
Spool::Beginning beginning_of(const TraceSettings& settings, const ClockMap& clock,
                              std::uint32_t parent_pid) {
    return [run = settings.run, encoded = settings_that_fit(settings, sizeof SpoolHeader::settings),
            segment = clock.segments().front(), parent_pid](SpoolHeader& h) noexcept {
        h.parent_pid = parent_pid;
        std::strncpy(h.run, run.c_str(), sizeof h.run - 1);
        std::memcpy(h.settings, encoded.data(), encoded.size());
        h.settings_bytes = static_cast<std::uint32_t>(encoded.size());
        h.clock[0] = segment;
        h.clock_segments.store(1, std::memory_order_release);
    };
}

// There is room for a spool, and files may be made; 0 or an errno. Nothing of it stays.
int try_place(const std::string& directory, const std::string& path) {
    HeldFile probe;
    const bool nameless = probe.create_nameless(directory, O_RDWR) == 0;
    if (!nameless)
        if (const int error = probe.create_new(path, O_RDWR)) return error;
    const int error = probe.reserve(0, 4 * unit_bytes);
    if (!nameless) unlink(path.c_str());
    return error;
}

// What to do where the process may not have so many addresses; nothing for another refusal.
std::string advice_on(int error, std::size_t spool_bytes) {
    if (error != ENOMEM) return {};
    struct rlimit limit;
    const bool limited = getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    std::string text = "; it takes " + std::to_string(spool_bytes) + " bytes of addresses";
    if (limited)
        text += ", and this process may have " + std::to_string(limit.rlim_cur) +
                " in all (RLIMIT_AS, ulimit -v)";
    return text + ": lower spool_bytes, or raise the limit";
}

}  // namespace

Spool new_spool(const TraceSettings& settings, const ClockMap& clock, std::uint32_t parent_pid) {
    const Spool::Beginning beginning = beginning_of(settings, clock, parent_pid);
    const ProcessIdentity self = ProcessIdentity::self();
    const std::string name = std::string("/") + spool_prefix + settings.run.substr(0, 16) + "-" +
                             std::to_string(self.pid) + "-" + std::to_string(self.start) + "-";
    static std::atomic<unsigned> serial{0};
    std::string tried;
    int last = 0;
    std::vector<std::string> directories = first_directories(settings);
    for (std::size_t i = 0; i < directories.size(); ++i) {
        const std::string directory = directories[i];
        int error = EEXIST;
        constexpr int attempts = 16;  // a name that is taken is not taken over
        for (int attempt = 0; error == EEXIST && attempt < attempts; ++attempt) {
            const std::string path = directory + name + std::to_string(serial.fetch_add(1)) + spool_suffix;
            error = try_place(directory, path);
            if (error) continue;
            try {
                return Spool(path, settings.spool_bytes, beginning);
            } catch (const std::system_error& refused) {
                error = refused.code().value();
            }
        }
        last = error;
        tried += (tried.empty() ? "" : "; ") + directory + ": " + reason_of(error).text;
        // Looked for only where need be: a server that is away would hold up the training.
        if (i == 0 && settings.spool_dir.empty() && directory == memory)
            for (std::string& other : directories_on_disk(settings)) directories.push_back(std::move(other));
    }
    throw std::runtime_error("no directory takes the spool (" + tried + ")" +
                             advice_on(last, settings.spool_bytes));
}

}  // namespace dftrace
