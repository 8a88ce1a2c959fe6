// Adding up what the processes below this one use, by proc(5).
#include "dftrace/system/children.hpp"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dftrace/system/small_file.hpp"

namespace dftrace {

namespace {

// Fields of /proc/<pid>/stat, counted from 1: utime, stime, cutime and cstime.
constexpr int first_time = 14;
constexpr int last_time = 17;
constexpr std::size_t most_bytes = 4096;

struct CloseDirectory {
    void operator()(DIR* directory) const noexcept { ::closedir(directory); }
};

// Numbers with blanks between them; false at what is none.
template <typename Take>
bool numbers(std::string_view text, Take take) {
    while (!text.empty()) {
        std::int64_t number = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
        if (error != std::errc()) return false;
        take(number);
        text.remove_prefix(static_cast<std::size_t>(end - text.data()));
        text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    }
    return true;
}

// Clock ticks of a process and of its children that ended; below zero where it is gone.
std::int64_t ticks_of(std::int64_t pid) {
    char path[32];
    std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(pid));
    const SmallFile file(path);
    // The name may hold anything, and stands in parentheses; then the state, a letter.
    std::string_view line = file.line();
    const std::size_t name_end = line.rfind(')');
    if (name_end == line.npos || line.size() < name_end + 4) return -1;
    line.remove_prefix(name_end + 4);
    std::int64_t ticks = 0;
    int field = 3;
    numbers(line, [&](std::int64_t number) {
        if (++field >= first_time && field <= last_time) ticks += number;
    });
    return field >= last_time ? ticks : -1;
}

// Adds the children of a process to `found`; false where they are not told.
bool add_children(std::int64_t pid, std::vector<std::int64_t>& found) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%lld/task", static_cast<long long>(pid));
    const std::unique_ptr<DIR, CloseDirectory> tasks(::opendir(path));
    if (!tasks) return false;
    while (const dirent* task = ::readdir(tasks.get())) {
        if (task->d_name[0] == '.') continue;
        std::snprintf(path, sizeof path, "/proc/%lld/task/%.10s/children", static_cast<long long>(pid),
                      task->d_name);
        const SmallFile file(path);
        if (!file.was_read()) return false;
        const std::string_view line = file.line();
        if (line.size() == most_bytes || !numbers(line, [&](std::int64_t child) { found.push_back(child); }))
            return false;
    }
    return true;
}

}  // namespace

std::optional<double> children_seconds() {
    rusage ended;
    if (::getrusage(RUSAGE_CHILDREN, &ended) != 0) return std::nullopt;
    std::vector<std::int64_t> processes{::getpid()};
    std::int64_t ticks = 0;
    for (std::size_t at = 0; at < processes.size(); ++at) {
        const std::int64_t pid = processes[at];
        const std::int64_t used = at ? ticks_of(pid) : 0;
        if (used < 0 || !add_children(pid, processes)) return std::nullopt;
        ticks += used;
    }
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return seconds(ended.ru_utime) + seconds(ended.ru_stime) +
           static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

}  // namespace dftrace
