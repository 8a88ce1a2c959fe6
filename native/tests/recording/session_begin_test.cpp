// A session that does not come about leaves nothing behind and says what is lacking.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>

#include "check.hpp"
#include "dftrace/recording/session.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"
#include "trace_reader.hpp"

using namespace dftrace;

namespace {

constexpr rlim_t one_unit = 64 * 1024;

// What standard error gets while `body` runs.
template <class Body>
std::string told_by(const ScratchDir& dir, Body body) {
    const std::string path = dir.file("told");
    REQUIRE(freopen(path.c_str(), "w", stderr) != nullptr);
    body();
    fflush(stderr);
    return file_bytes(path);
}

bool signals_are_blocked() {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return sigismember(&now, SIGINT) == 1;
}

// Whoever may have no more threads; root may always.
void allow_no_threads() {
    const rlimit none{0, 0};
    REQUIRE(setrlimit(RLIMIT_NPROC, &none) == 0);
    if (geteuid() == 0) REQUIRE(setgid(65534) == 0 && setuid(65534) == 0);
}

}  // namespace

TEST("where no thread can be started nothing is left, and the limit is named") {
    const ScratchDir dir;
    REQUIRE(chmod(dir.path().c_str(), 0777) == 0);
    CHECK(in_child([&dir] {
        start_run(dir.settings());
        const std::size_t before = open_descriptors();
        EventName name("begin", "span");
        const std::string told = told_by(dir, [&] {
            allow_no_threads();
            for (int i = 0; i < 3; ++i) SpanScope span(name);
        });
        CHECK(told.find("the thread that writes the trace cannot be started") != std::string::npos);
        CHECK(told.find("RLIMIT_NPROC") != std::string::npos);
        CHECK_EQ(told.find("dftrace:"), told.rfind("dftrace:"));
        CHECK(!signals_are_blocked());
        CHECK_EQ(finish_run({"finalize"}).events, 0);
        CHECK_EQ(open_descriptors(), before);
        CHECK_EQ(dir.files().size(), 1);  // what was told
    }));
}

TEST("a limit on the size of files is not told as a full disk") {
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        TraceSettings settings = dir.settings();
        settings.spool_dir = dir.path();
        start_run(settings);
        EventName name("begin", "span");
        const std::string told = told_by(dir, [&] {
            const rlimit small{one_unit, one_unit};
            REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
            SpanScope span(name);
        });
        CHECK(told.find("RLIMIT_FSIZE") != std::string::npos);
        CHECK(told.find("65536 bytes") != std::string::npos);
        CHECK(told.find(dir.path()) != std::string::npos);
        CHECK(told.find("No space") == std::string::npos);
        CHECK_EQ(dir.files().size(), 1);
    }));
}

TEST("memory that cannot be mapped leaves no spool") {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    SKIP("the sanitizers map more than the limit themselves");
#endif
    const ScratchDir dir;
    CHECK(in_child([&dir] {
        TraceSettings settings = dir.settings();
        settings.spool_bytes = std::size_t{1} << 46;
        start_run(settings);
        EventName name("begin", "span");
        const std::string told = told_by(dir, [&] {
            const rlimit small{std::size_t{1} << 40, RLIM_INFINITY};
            REQUIRE(setrlimit(RLIMIT_AS, &small) == 0);
            SpanScope span(name);
        });
        CHECK(told.find("Cannot allocate memory") != std::string::npos);
        CHECK_EQ(dir.files().size(), 1);
    }));
}
