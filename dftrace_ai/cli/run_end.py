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


class _EndError(Exception):
    """The program says that it is about to end."""


def main() -> None:
    """Wait for the end of a process, and say what there is to say of what it has recorded."""
    pid, began_ns, prefix, home, paths, *what = sys.argv[1:]
    with suppress(_EndError):
        signal.signal(signal.SIGUSR1, _end)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
        _wait_for(int(pid))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    sys.path[:] = json.loads(paths)
    from dftrace_ai.wording import quoted

    # Nothing of a run that is on, also of another one, takes hold in here.
    for name in [name for name in os.environ if name.startswith(("DFTRACE_", "DFTRACER_"))]:
        del os.environ[name]
    folder = os.path.dirname(prefix)
    if "new" in what:
        with suppress(OSError):
            os.rmdir(folder)  # noqa: PTH106 - nothing more is loaded; it is empty
    if "quiet" in what or not _own_files(prefix, int(began_ns)):
        return
    said = _judged(prefix, began_ns)
    below = os.path.relpath(folder, home) if home else ".."
    # Where a command without a path finds it.
    is_here = not any(part[:1] == "." != part for part in below.split("/"))
    shown = quoted(below if is_here else folder)
    where = "" if is_here else f" {shown}"
    said += f"dftrace: trace in {shown}; next: dftrace why{where}, view, report\n".encode()
    with suppress(OSError):
        os.write(2, said)


def _own_files(prefix: str, began_ns: int) -> bool:
    """Return whether anything was recorded: another run of before may lie there, too."""
    folder, stem = os.path.split(prefix)
    try:
        with os.scandir(folder) as entries:
            return any(
                entry.name.startswith(f"{stem}-") and entry.stat().st_mtime_ns >= began_ns
                for entry in entries
            )
    except OSError:
        return False


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
    ours, its = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(its, 1)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for names in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[names] = "1"
        status = 1
        with suppress(BaseException):
            from pathlib import Path

            from dftrace_ai.analysis.closing import print_end
            from dftrace_ai.spools.completing import complete_directories

            resource.setrlimit(resource.RLIMIT_CPU, (LIMIT_S, LIMIT_S))
            complete_directories([Path(words[0]).parent], deep=False)
            status = print_end(words)
        os._exit(status)
    os.close(its)
    said = b""
    until_s = time.monotonic() + PATIENCE_S
    while (left_s := until_s - time.monotonic()) > 0 and select.select([ours], [], [], left_s)[0]:
        more = os.read(ours, MOST_SAID)
        said += more
        if not more:
            break
    with suppress(OSError):
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return said


if __name__ == "__main__":
    main()
