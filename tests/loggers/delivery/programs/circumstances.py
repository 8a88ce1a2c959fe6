"""Programs in trouble: without descriptors, directories, room, threads or memory."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from programs.common import STEPS, loggers, some


def closes_all_descriptors() -> None:
    """What a daemon does, in the midst of a training, which then opens files of its own."""
    logs = loggers("nasty", "trace")
    some(logs, STEPS // 2)
    logs.flush()
    os.closerange(3, 65536)
    files = [open(f"own{number}", "wb") for number in range(STEPS)]
    # Those that were ours, should anybody still write there.
    for number in range(1024, 4096):
        os.dup2(files[0].fileno(), number)
    for step in range(STEPS // 2, STEPS):
        logs.log_iter({"loss": float(step)})
    logs.end_log()
    for file in files:
        file.close()
    assert [file for file in os.listdir() if file.startswith("own") and os.path.getsize(file)] == []
    print("trained")


def loses_its_directory(how: str) -> None:
    """The directory of the run is renamed, or removed, while it is written to."""
    import shutil

    logs = loggers("nasty")
    some(logs, STEPS // 2)
    logs.flush()
    if how == "renamed":
        Path("runs/default/run").rename("runs/default/moved")
    else:
        shutil.rmtree("runs/default/run")
    for step in range(STEPS // 2, STEPS):
        logs.log_iter({"loss": float(step)})
    print("trained")


def fills_the_disk() -> None:
    """Nothing more may be written after a while, and then it may again."""
    import resource

    logs = loggers("nasty")
    some(logs, STEPS // 2)
    logs.flush()
    size = max(os.path.getsize(file) for file in Path("runs/default/run").iterdir())
    none = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, none[1]))
    some(logs, STEPS)
    logs.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, none)
    for step in range(STEPS // 2, STEPS):
        logs.log_iter({"loss": float(step)})
    print("trained")


def has_no_threads() -> None:
    """No thread can be started; local logs included, nothing can be done, and it is told."""

    def refuse(*args: object) -> None:
        raise RuntimeError("can't start new thread")

    threading._start_new_thread = refuse  # type: ignore[attr-defined]
    logs = loggers("nasty")
    some(logs)
    logs.log_epoch()
    logs.flush()
    print("trained")


def has_no_processes() -> None:
    """The user may start no more processes, or the machine has no memory for one."""

    def refuse(*args: object) -> None:
        raise BlockingIOError("Resource temporarily unavailable")

    import subprocess

    subprocess._fork_exec = refuse  # type: ignore[attr-defined]
    some_kept = loggers("nasty")
    some(some_kept)
    print("trained")


def has_no_memory_without_a_name() -> None:
    """As under a kernel, or a filter of its calls, without memfd_create."""

    def refuse(*args: object) -> None:
        raise OSError("Function not implemented")

    os.memfd_create = refuse  # type: ignore[assignment]
    logs = loggers("nasty")
    some(logs)
    print("trained")


def has_few_descriptors(limit: int) -> None:
    """`ulimit -n` is small."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    held = []
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        for number in held[-3:]:
            os.close(number)
    logs = loggers("nasty")
    some(logs)
    print("trained")


def has_no_streams() -> None:
    """As a program that was started with its standard streams closed."""
    for number in (0, 1, 2):
        os.close(number)
    sys.stdin = sys.stdout = sys.stderr = None  # type: ignore[assignment]
    logs = loggers("nasty", options={"phase": "log", "how": "raise_"}, status_line=True)
    some(logs)
    logs.log_epoch()


def ignores_its_children() -> None:
    """The program has the kernel clear its children away, and ends at a closed pipe."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    logs = loggers("nasty", options={"phase": "log", "how": "os_exit"}, limit_s=3600.0)
    some(logs)
    logs.flush()
    some(logs)
    logs.log_epoch()
    print("trained")


def two_at_once() -> None:
    """Two in one directory, and one after another."""
    first = loggers()
    some(first)
    first.flush()
    second = loggers()
    some(second)
    # By then it has begun beside the first.
    second.flush()
    first.end_log()
    second.end_log()
    third = loggers()
    some(third)
    print("trained")


def two_programs_at_once() -> None:
    """Two in one directory, of two programs that are no relatives."""
    reading, writing = os.pipe()
    brother = os.fork()
    if not brother:
        first = loggers()
        first.flush()
        os.write(writing, b"!")
        signal.pause()
    other = os.fork()
    if not other:
        os.read(reading, 1)
        second = loggers()
        some(second)
        second.flush()
        os.kill(brother, signal.SIGKILL)
        print("trained")
        return
    os.waitpid(brother, 0)
    sys.stdout.flush()
    os.waitpid(other, 0)
