// The closing line once more, with what became known behind it.
#include "dftrace/writing/written_end.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <exception>
#include <string_view>

#include "dftrace/system/file_size_signal.hpp"

namespace dftrace {

void WrittenEnd::tell_exit_status(int status) noexcept {
    constexpr std::string_view close = "}}\n";
    HeldFile held;
    struct stat info;
    if (!text.ends_with(close) || held.open(path, O_WRONLY)) return;
    if (fstat(held.descriptor(), &info) != 0 || !file.is(info) ||
        static_cast<std::uint64_t>(info.st_size) != to)
        return;
    std::string block;
    try {
        text.resize(text.size() - close.size());
        text.append(",\"exit_status\":").append(std::to_string(status)).append(close);
        codec->append(block, text, facts);
    } catch (const std::exception&) {
        return;  // there is no memory
    }
    const FileSizeSignalHeld held_signal;
    // A longer block fits, or nothing is written: a file that is half the one and half the other has no end.
    if (from + block.size() > to && held.reserve(to, from + block.size() - to)) {
        static_cast<void>(ftruncate(held.descriptor(), static_cast<off_t>(to)));
        return;
    }
    // In one call: a process that is killed in it has written all or nothing of so few bytes.
    if (pwrite(held.descriptor(), block.data(), block.size(), static_cast<off_t>(from)) ==
            static_cast<ssize_t>(block.size()) &&
        from + block.size() < to)
        static_cast<void>(ftruncate(held.descriptor(), static_cast<off_t>(from + block.size())));
}

}  // namespace dftrace
