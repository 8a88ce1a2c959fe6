// How a process ended, as far as the system still knows, and what the trace says of it.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "check.hpp"
#include "dead_run.hpp"
#include "dftrace/reading/adoption.hpp"
#include "dftrace/spool/spool.hpp"
#include "scratch.hpp"
#include "span_scope.hpp"

using namespace dftrace;

namespace {

// A child that has ended and was not waited for.
class Zombie {
  public:
    explicit Zombie(const std::function<void()>& body) {
        child_ = fork();
        if (child_ == 0) {
            body();
            _exit(0);
        }
        siginfo_t info{};
        REQUIRE(waitid(P_PID, static_cast<id_t>(child_), &info, WEXITED | WNOWAIT) == 0);
    }
    ~Zombie() { bury(); }
    Zombie(const Zombie&) = delete;
    Zombie& operator=(const Zombie&) = delete;
    void bury() {
        if (child_ > 0) wait_for(std::exchange(child_, -1));
    }

  private:
    pid_t child_ = -1;
};

struct Death {
    std::function<void()> die;
    int signal;
    int exit_status;
};

const Death deaths[] = {
    {[] { kill(getpid(), SIGKILL); }, SIGKILL, -1},
    {[] {
         signal(SIGTERM, SIG_DFL);
         raise(SIGTERM);
     },
     SIGTERM, -1},
    {[] { _exit(3); }, 0, 3},
    {[] { _exit(255); }, 0, 255},
};

TraceEvent footer_of(const Trace& trace) {
    TraceEvent last;
    trace.each([&last](const TraceEvent& e) { last = e; });
    return last;
}

}  // namespace

TEST("the footer says how the process ended, where that is known") {
    for (const bool waited_for : {false, true})
        for (const Death& death : deaths) {
            const ScratchDir dir;
            Zombie zombie([&] {
                start_run(dir.settings());
                EventName name("end", "span");
                { SpanScope span(name); }
                death.die();
            });
            const std::string spool = dir.only(".spool");
            ProcessIdentity another = ProcessIdentity::of(OpenedSpool(spool).header());
            ++another.start;
            CHECK(ProcessEnd::of(another).signal == 0 && ProcessEnd::of(another).exit_status == -1);
            if (waited_for) zombie.bury();
            const Trace trace = adopted(spool);
            const Footer footer = check_complete(trace, "died");
            CHECK_EQ(footer.told("signal"), waited_for ? 0 : death.signal);
            const TraceEvent last = footer_of(trace);
            const bool told = !waited_for && death.exit_status >= 0;
            CHECK_EQ(last.arg("exit_status"), told ? std::to_string(death.exit_status) : "");
        }
}

TEST("after a restart of the machine the footer says so, and asks no process of this boot") {
    const ScratchDir dir;
    const Zombie zombie([&] {
        start_run(dir.settings());
        EventName name("end", "span");
        { SpanScope span(name); }
        _exit(3);
    });
    const std::string path = dir.only(".spool");
    std::strcpy(OpenedSpool(path).header().boot_id, "another boot");
    const Trace trace = adopted(path);
    check_complete(trace, "reboot");
    CHECK_EQ(footer_of(trace).arg("exit_status"), "");
}

TEST("a process of another container is alive as long as it holds its spool") {
    const ScratchDir dir;
    int to_child[2], to_parent[2];
    REQUIRE(pipe(to_child) == 0 && pipe(to_parent) == 0);
    const pid_t child = fork();
    if (child == 0) {
        start_run(dir.settings());
        EventName name("end", "span");
        { SpanScope span(name); }
        char byte = 0;
        if (write(to_parent[1], "x", 1) != 1 || read(to_child[0], &byte, 1) != 1) _exit(1);
        kill(getpid(), SIGKILL);
    }
    char byte = 0;
    REQUIRE_EQ(read(to_parent[0], &byte, 1), 1);
    const std::string path = dir.only(".spool");
    {
        const OpenedSpool spool(path);
        ++spool.header().pid_namespace;
        spool.header().pid = 0x7FFF'FFFF;  // here there is no such process
    }
    CHECK(adopt_spool(path).state == Adopted::alive);
    CHECK_EQ(write(to_child[1], "x", 1), 1);
    CHECK(was_killed(wait_for(child)));
    const Trace trace = adopted(path);
    CHECK_EQ(check_complete(trace, "died").told("signal"), 0);
    for (const int fd : {to_child[0], to_child[1], to_parent[0], to_parent[1]}) close(fd);
}
