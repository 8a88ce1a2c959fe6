"""The process beside a program below `dftrace run`, which says how the run was when that has ended.

A program of its own: one that is killed says nothing itself, and the launcher has become it. It
loads nothing before the end, and is neither a child of the program nor in its session.
"""

import json
import os
import resource
import select
import signal
import sys
import time
from contextlib import suppress

# Of a processor, by what counts it; then the trace is too large.
LIMIT_S = 1
# Of a clock, on a machine that others keep busy.
PATIENCE_S = 10.0
LOOK_S = 0.2
MOST_SAID = 64 * 1024


# So long somebody may take to read it; a pipe that nobody reads takes no more of it.
READ_S = 5.0


class _EndError(Exception):
    """The program says that it is about to end."""


def main() -> None:
    """Wait for the end of a process, and say what there is to say of what it has recorded."""
    pid, began_ns, folder, launch, home, paths, quiet, *goes = sys.argv[1:]
    with suppress(_EndError):
        signal.signal(signal.SIGUSR1, _end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        _wait_for(int(pid))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    sys.path[:] = json.loads(paths)
    # Nothing of a run that is on, also of another one, takes hold in here.
    for name in [name for name in os.environ if name.startswith(("DFTRACE_", "DFTRACER_"))]:
        del os.environ[name]
    if not quiet:
        _say(_judged(pid, folder, launch, began_ns, home))
    from dftrace_ai.cli.run_folder import remove_empty

    remove_empty(goes)


def _printed(pid: str, folder: str, launch: str, began_ns: str, home: str) -> int:
    """Print on the first line where the trace is, and behind it all that is said in the end."""
    from pathlib import Path

    from dftrace_ai.analysis.closing import LaunchEnd, print_end
    from dftrace_ai.spools.completing import complete_directories, left_by_launch, spools_of_launch

    end = LaunchEnd(Path(folder), launch, int(began_ns), home)
    if not any(map(end.is_of, end.files())) and not any(spools_of_launch(end.folder, launch)):
        return 0
    print(end.place_line(), flush=True)
    complete_directories([end.folder], deep=False)
    left = left_by_launch(end.folder, launch, int(pid))
    return print_end(end, left)


def _say(said: bytes) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # which ends this process, where it waits
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.setitimer(signal.ITIMER_REAL, READ_S)
    with suppress(OSError):
        while said:
            said = said[os.write(2, said) :]
    signal.setitimer(signal.ITIMER_REAL, 0.0)


def _end(*_: object) -> None:
    raise _EndError


def _wait_for(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except (AttributeError, OSError):  # of a kernel before 5.3, or it has ended
        with suppress(OSError):
            while True:
                os.kill(pid, 0)
                time.sleep(LOOK_S)
        return
    select.select([descriptor], [], [])


def _judged(*words: str) -> bytes:
    """Return what a process of its own says, which may use so much of a processor and no more."""
    # All behind its first line, or, where it has not come to its end, that line alone.
    ours, its = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(its, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for names in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[names] = "1"
        status = 1
        with suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
            status = _printed(*words)
        os._exit(status)
    os.close(its)
    said = b""
    until_s = time.monotonic() + PATIENCE_S
    while (left_s := until_s - time.monotonic()) > 0 and select.select([ours], [], [], left_s)[0]:
        more = os.read(ours, MOST_SAID)
        said += more
        if not more:
            break
    else:
        with suppress(OSError):
            os.kill(child, signal.SIGKILL)
    status = 1
    with suppress(OSError):
        status = os.waitpid(child, 0)[1]
    first, end, rest = said.partition(b"\n")
    return first + end if status or not rest else rest


if __name__ == "__main__":
    main()
