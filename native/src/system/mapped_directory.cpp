// Reading in the kernel's list of what is mapped.
#include "dftrace/system/mapped_directory.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdint>
#include <new>
#include <string_view>

#include "dftrace/system/directory.hpp"

namespace dftrace {

namespace {

bool holds(std::string_view line, std::uintptr_t address) noexcept {
    std::uintptr_t first = 0, end = 0;
    const char* const last = line.data() + line.size();
    const auto dash = std::from_chars(line.data(), last, first, 16);
    return dash.ptr != last && std::from_chars(dash.ptr + 1, last, end, 16).ec == std::errc() &&
           first <= address && address < end;
}

// The sixth field, in which a line break is written as its number.
std::string path_of(std::string_view line) {
    const auto slash = line.find('/');
    std::string path(line.substr(slash == line.npos ? line.size() : slash));
    constexpr std::string_view line_break = "\\012";
    for (auto at = path.find(line_break); at != path.npos; at = path.find(line_break, at + 1))
        path.replace(at, line_break.size(), "\n");
    return path;
}

}  // namespace

std::string directory_of_mapping(const void* address) noexcept {
    HeldFile maps;
    if (!address || maps.open("/proc/self/maps", O_RDONLY) != 0) return {};
    try {
        std::string lines;
        char piece[4096];
        for (;;) {
            const ssize_t got = ::read(maps.descriptor(), piece, sizeof piece);
            if (got < 0 && errno == EINTR) continue;
            if (got <= 0) return {};
            lines.append(piece, static_cast<std::size_t>(got));
            std::size_t begin = 0;
            for (auto end = lines.find('\n'); end != lines.npos; end = lines.find('\n', begin)) {
                const std::string_view line = std::string_view(lines).substr(begin, end - begin);
                if (holds(line, reinterpret_cast<std::uintptr_t>(address))) {
                    const std::string path = path_of(line);
                    return path.empty() ? path : directory_of(path);
                }
                begin = end + 1;
            }
            lines.erase(0, begin);
        }
    } catch (const std::bad_alloc&) {
        return {};
    }
}

void MappedDirectory::open(const std::string& path, const void* mapped) noexcept {
    mapped_ = mapped;
    static_cast<void>(held_.open_directory(path));
}

int MappedDirectory::descriptor() noexcept {
    if (held_.known() && held_.descriptor() < 0) {
        const std::string path = directory_of_mapping(mapped_);
        if (!path.empty()) static_cast<void>(held_.open_again(path, O_PATH | O_DIRECTORY));
    }
    return held_.descriptor();
}

std::string MappedDirectory::path_now() noexcept {
    return descriptor() < 0 ? std::string() : held_.path_now();
}

}  // namespace dftrace
