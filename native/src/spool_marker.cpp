// Writing the marker.
#include "dftrace/spool_marker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#include "dftrace/held_file.hpp"
#include "dftrace/spool.hpp"
#include "dftrace/trace_writer.hpp"

namespace dftrace {

std::string marker_place() {
    const ProcessIdentity self = ProcessIdentity::self();
    return self.boot_id + " " + std::to_string(self.pid_namespace);
}

namespace {

std::string write(const TraceSettings& settings, const std::string& spool) {
    const std::string stem = file_stem(settings, static_cast<std::uint32_t>(getpid()));
    const std::string text = spool + "\n" + marker_place() + "\n";
    for (int attempt = 0; attempt < 1000; ++attempt) {
        const std::string path = stem + (attempt ? "-" + std::to_string(attempt) : "") + ".spool-at";
        HeldFile file;
        const int error = file.create_new(path, O_WRONLY);
        if (error == EEXIST) continue;
        if (error) break;
        if (::write(file.descriptor(), text.data(), text.size()) == static_cast<ssize_t>(text.size()))
            return path;
        unlink(path.c_str());
        break;
    }
    return {};
}

}  // namespace

std::string write_marker(const TraceSettings& settings, const std::string& spool) noexcept {
    try {
        return write(settings, spool);
    } catch (const std::bad_alloc&) {
        return {};
    }
}

}  // namespace dftrace
