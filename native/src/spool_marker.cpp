// Writing the marker.
#include "dftrace/spool_marker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "dftrace/directory.hpp"
#include "dftrace/held_file.hpp"
#include "dftrace/spool.hpp"
#include "dftrace/trace_writer.hpp"

namespace dftrace {

std::string marker_place() {
    const ProcessIdentity self = ProcessIdentity::self();
    return self.boot_id + " " + std::to_string(self.pid_namespace);
}

namespace {

bool put(const HeldFile& file, const std::string& text) {
    return ::write(file.descriptor(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
}

// For a file system where none is without a name: readers know that one that does not end is not finished.
// 0 or an errno.
int make_in_place(const std::string& path, const std::string& text) {
    HeldFile file;
    if (const int error = file.create_new(path, O_WRONLY)) return error;
    if (put(file, text)) return 0;
    unlink(path.c_str());
    return ENOSPC;
}

// A marker appears with all that it says, and never empty: its process may end at any moment.
std::string make(const TraceSettings& settings, const std::string& spool) {
    const std::string stem = file_stem(settings, static_cast<std::uint32_t>(getpid()));
    const std::string text = spool + "\n" + marker_place() + "\n";
    HeldFile nameless;
    const bool whole = nameless.create_nameless(directory_of(stem), O_WRONLY) == 0 && put(nameless, text);
    for (int attempt = 0; attempt < 1000; ++attempt) {
        const std::string path = stem + (attempt ? "-" + std::to_string(attempt) : "") + ".spool-at";
        int error = whole ? nameless.take_name(path) : ENOTSUP;
        if (error && error != EEXIST) error = make_in_place(path, text);
        if (!error) return path;
        if (error != EEXIST) break;
    }
    return {};
}

}  // namespace

std::string write_marker(const TraceSettings& settings, const std::string& spool) noexcept {
    try {
        return make(settings, spool);
    } catch (const std::bad_alloc&) {
        return {};
    }
}

}  // namespace dftrace
