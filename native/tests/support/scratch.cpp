// Directories and processes of the tests.
#include "scratch.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "check.hpp"
#include "dftrace/system/host_name.hpp"
#include "dftrace/text/hash.hpp"

namespace fs = std::filesystem;

ScratchDir::ScratchDir() {
    std::string pattern = (fs::temp_directory_path() / "dftrace-test-XXXXXX").string();
    if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
    path_ = pattern;
}

ScratchDir::~ScratchDir() {
    std::error_code ignored;  // what is left in the temporary directory harms nobody
    fs::remove_all(path_, ignored);
}

std::vector<std::string> ScratchDir::files(const std::string& suffix) const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(path_)) {
        const std::string path = entry.path().string();
        if (path.size() >= suffix.size() &&
            path.compare(path.size() - suffix.size(), suffix.size(), suffix) == 0)
            found.push_back(path);
    }
    std::sort(found.begin(), found.end());
    return found;
}

std::string ScratchDir::only(const std::string& suffix) const {
    const auto found = files(suffix);
    REQUIRE_EQ(found.size(), 1);
    return found.front();
}

dftrace::TraceSettings ScratchDir::settings() const {
    dftrace::TraceSettings s;
    s.prefix = file("trace");
    s.host = dftrace::host_name();
    s.host_hash = dftrace::hash_hex(s.host);
    s.run = "0123456789abcdef0123456789abcdef";
    s.process_name_json = "\"test\"";
    s.header_json = ",\"version\":\"0\"";
    s.cwd_json = "\"/\"";
    s.command_json = "\"dftrace_tests\"";
    s.flush_interval_ms = 10;
    s.spool_dir = path_;
    return s;
}

bool in_child(const std::function<void()>& body) {
    std::fflush(stdout);
    const int before = check::failures();
    const pid_t child = fork();
    if (child == 0) {
        try {
            body();
        } catch (const check::Stopped&) {
        } catch (const std::exception& error) {
            check::failed(__FILE__, __LINE__, error.what());
        }
        std::fflush(stdout);
        // Statics, sanitizers' reports at exit and the like are the parent's business.
        _exit(check::failures() == before ? 0 : 1);
    }
    if (child < 0) return false;
    const int status = wait_for(child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return status;
}

pid_t start_victim(const std::vector<std::string>& arguments) {
    std::vector<char*> argv{const_cast<char*>(DFTRACE_VICTIM)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        execv(argv[0], argv.data());
        _exit(127);
    }
    REQUIRE(child > 0);
    return child;
}

std::size_t open_descriptors() {
    const fs::directory_iterator all("/proc/self/fd");
    return static_cast<std::size_t>(std::distance(fs::begin(all), fs::end(all)));
}

std::uint64_t scaled(std::uint64_t count) {
#if defined(__SANITIZE_THREAD__)
    constexpr std::uint64_t slower = 10;
#elif defined(__SANITIZE_ADDRESS__)
    constexpr std::uint64_t slower = 2;
#else
    constexpr std::uint64_t slower = 1;
#endif
    const bool under_valgrind = std::getenv("DFTRACE_TESTS_SLOW") != nullptr;
    return count / slower / (under_valgrind ? 50 : 1);
}
