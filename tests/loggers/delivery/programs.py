"""Small programs that log, each to be run in a process of its own."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import nasty

from dftrace_ai.loggers import Loggers, make_loggers

STEPS = 20
SOON_S = 30


class NoLoggers:
    """Stands where loggers would, for the same program without them."""

    def __enter__(self) -> NoLoggers:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def __iter__(self) -> Any:
        return iter((self, self))

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None


def loggers(
    *trackers: str,
    options: dict[str, Any] | None = None,
    run: str = "run",
    **settings: Any,
) -> Loggers:
    """Loggers to `local` and to others, with a short limit and nothing printed."""
    quiet = {"status_line": False, "system_metrics_s": None}
    config = {"run_name": run, "limit_s": 20.0, **quiet, **settings}
    entries: dict[str, Any] = {"local": {"config": {**config, "in_process": False}}}
    entries |= {name: {"config": {**config, "options": options or {}}} for name in trackers}
    return make_loggers(entries)


def some(logs: Any, steps: int = STEPS) -> None:
    """Log so many iterations."""
    for step in range(steps):
        logs.log_iter({"loss": float(step)})


def misbehave(**settings: Any) -> None:
    """A training beside a tracker that misbehaves."""
    logs = loggers("nasty", **settings)
    some(logs)
    logs.log_epoch()
    print("trained")


def is_killed_beside(how: str) -> None:
    """Killed while its tracker hangs in the midst of a call."""
    logs = loggers("nasty", options={"phase": "log", "how": how}, limit_s=1.0)
    some(logs)
    wait_for(Path("runs/default/run/processes.txt").exists)
    os.kill(os.getpid(), signal.SIGKILL)


def patient(where: Any, *trackers: str) -> Any:
    """Loggers as those of a program whose ending is tried; or none."""
    return loggers("nasty", *trackers) if where else NoLoggers()


def wait_for(is_so: Callable[[], bool]) -> None:
    """Wait until something is so."""
    until = time.monotonic() + SOON_S
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.005)


# How programs end; `with_loggers` is false for the same program without.


def returns(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)


def exits(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    sys.exit(3)


def raises(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    raise ValueError("the training fails")


def is_interrupted(with_loggers: bool) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    logs = patient(with_loggers)
    some(logs)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(SOON_S)


def is_terminated(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SOON_S)


def on_its_own(number: int, frame: FrameType | None) -> None:
    print("the program's handler")
    sys.exit(5)


def is_terminated_with_a_handler(with_loggers: bool) -> None:
    signal.signal(signal.SIGTERM, on_its_own)
    logs = patient(with_loggers)
    some(logs)
    print(signal.getsignal(signal.SIGTERM) is on_its_own)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(SOON_S)


def is_terminated_with_a_later_handler(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    before = signal.getsignal(signal.SIGTERM)

    def later(number: int, frame: FrameType | None) -> None:
        print("the program goes on")
        if callable(before):
            before(number, frame)

    signal.signal(signal.SIGTERM, later)
    os.kill(os.getpid(), signal.SIGTERM)
    some(logs)


def is_killed(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    logs.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def leaves_at_once(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    logs.flush()
    os._exit(4)


def with_block(with_loggers: bool, how: str) -> None:
    with patient(with_loggers) as logs:
        some(logs)
        if how == "raise":
            raise ValueError("the training fails")
        if how == "exit well":
            sys.exit(0)
        if how == "exit ill":
            sys.exit(6)


def hook_replaced(with_loggers: bool, when: str) -> None:
    def hook(*error: object) -> None:
        print("the program's hook")

    if when == "before":
        sys.excepthook = hook
    logs = patient(with_loggers)
    some(logs)
    if when == "after":
        sys.excepthook = hook
    raise ValueError("the training fails")


def recovers(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    try:
        raise ValueError("the training recovers")
    except ValueError:
        print("recovered")


def trains_in_a_thread(with_loggers: bool) -> None:
    logs = patient(with_loggers)

    def train() -> None:
        threading.main_thread().join()
        some(logs)
        print("trained")

    threading.Thread(target=train).start()


def logs_at_exit(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    atexit.register(some, logs)
    threading.Thread(target=lambda: threading.main_thread().join()).start()


def ends_twice(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    logs.end_log()
    logs.end_log("failed")


def ends_in_a_handler(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    signal.signal(signal.SIGUSR1, lambda *_: logs.end_log("killed"))

    class Interrupting(float):
        def __float__(self) -> float:
            os.kill(os.getpid(), signal.SIGUSR1)
            return 1.0

    some(logs)
    logs.log_iter({"odd": Interrupting()})


def ends_within_its_end(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    left = [None] * 5

    def on_alarm(number: int, frame: FrameType | None) -> None:
        if left:
            left.pop()
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        logs.end_log("killed")

    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    logs.end_log("finished")
    signal.setitimer(signal.ITIMER_REAL, 0)


def ends_in_a_daemon(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    begun = threading.Event()

    def end() -> None:
        begun.set()
        logs.end_log()

    threading.Thread(target=end, daemon=True).start()
    begun.wait()


def ends_in_threads(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    threads = [threading.Thread(target=logs.end_log) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def ends_at_exit(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    atexit.register(logs.end_log)
    some(logs)


def makes_many() -> None:
    """Run after run in one program: nothing of those that have ended stays behind."""
    from dftrace_ai.loggers import endings

    for number in range(40):
        logs = loggers(run=f"run{number}")
        some(logs, 3)
        if number % 2:
            logs.end_log()
        del logs
        gc.collect()
    wait_for(lambda: not endings._open and threading.active_count() == 1)
    found = [(Path("runs/default") / f"run{number}").glob("*.jsonl") for number in range(40)]
    assert all('"finished"' in next(files).read_text() for files in found)
    print("trained")


def drops_them(with_loggers: bool) -> None:
    logs = patient(with_loggers)
    some(logs)
    del logs
    gc.collect()
    if with_loggers:
        # Ended there and then, and not with the program.
        taken = Path("runs/default/run/nasty.txt")
        wait_for(lambda: taken.exists() and "finished" in taken.read_text())
    raise ValueError("the training fails")


def unpacks_them(with_loggers: bool) -> None:
    local, tracker = patient(with_loggers)
    gc.collect()
    some(local)
    some(tracker)


def fails_in_a_child(with_loggers: bool, how: str) -> None:
    import multiprocessing

    process = multiprocessing.get_context(how).Process(target=raises, args=(with_loggers,))
    process.start()
    process.join()
    sys.exit(process.exitcode)


def waits_for_any_child(with_loggers: bool) -> None:
    died: list[int] = []
    logs = patient(with_loggers)
    some(logs)
    child = os.fork()
    if not child:
        os._exit(0)
    while True:
        try:
            died.append(os.wait()[0])
        except ChildProcessError:
            break
    print(died == [child])


# Forks.


def loads_data(epochs: int) -> None:
    """Epochs with four forked workers, who log by mistake, beside live trackers."""
    from torch.utils.data import DataLoader, Dataset

    logs = loggers("nasty", "tensorboard", "trace")

    class Items(Dataset[int]):
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            logs.log_iter({"loss": -1.0})
            logs.log_epoch()
            logs.flush()
            if index == 0:
                logs.end_log("failed")
            assert not ours_open(), ours_open()
            return index

    for _ in range(epochs):
        loader = DataLoader(Items(), batch_size=2, num_workers=4, multiprocessing_context="fork")
        for batch in loader:
            logs.log_iter({"loss": float(batch.sum())})
    print("trained")


def ours_open() -> list[str]:
    """The files and pipes of loggers that this process has open."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        # Numbers that are out of the program's way are those of this package. The writer of
        # TensorBoard opens its file now and then on a thread of its own, and writes no more here.
        if path.endswith(".jsonl") or "dftrace-tracker" in path or int(number) >= 1024:
            found.append(path)
    return found


def is_killed_beside_workers() -> None:
    """Killed while its forked worker lives on, which holds nothing of the tracker's."""
    logs = loggers("nasty")
    some(logs)
    logs.flush()
    if not os.fork():
        # Ended with the group, by who has started it all.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        wait_for(lambda: "killed" in Path("runs/default/run/nasty.txt").read_text())
        Path("seen").write_text("killed")
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def work_of_a_child(how: str) -> None:
    """What a child of multiprocessing does with loggers of its own."""
    child = loggers("nasty", run=f"child-{how}")
    some(child)


def logs_what_it_was_given(logs: Any) -> None:
    """What a child does with the loggers of its parent."""
    some(logs)
    some(logs[1])
    logs.end_log("failed")


def forks_in_all_ways() -> None:
    """Children by all ways there are, with loggers of their own, or none."""
    import copy
    import multiprocessing
    import subprocess

    logs = loggers("nasty")
    some(copy.deepcopy(logs), STEPS // 2)
    for how in ("fork", "spawn"):
        given = multiprocessing.get_context(how).Process(
            target=logs_what_it_was_given, args=(logs,)
        )
        given.start()
        given.join()
        assert given.exitcode == 0, how
    for how in ("fork", "spawn", "forkserver"):
        child = multiprocessing.get_context(how).Process(target=work_of_a_child, args=(how,))
        child.start()
        child.join()
        assert child.exitcode == 0, how
    subprocess.run([sys.executable, "-c", "pass"], check=True, close_fds=False)
    child_number = os.fork()
    if not child_number:
        some(logs)
        logs.end_log("failed")
        sys.exit(0)
    assert os.waitpid(child_number, 0)[1] == 0
    # A fork of another thread, while this one logs.
    told: list[int] = []

    def fork_there() -> None:
        number = os.fork()
        if not number:
            os._exit(0)
        told.append(os.waitpid(number, 0)[1])

    thread = threading.Thread(target=fork_there)
    thread.start()
    for step in range(STEPS // 2, STEPS):
        logs.log_iter({"loss": float(step)})
    thread.join()
    assert told == [0]


# Circumstances.


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
    first.end_log()
    second.end_log()
    third = loggers()
    some(third)
    print("trained")


def cannot_write() -> None:
    """Where there is no directory, and none can be made."""
    from dftrace_ai.errors import LogDirectoryError

    Path("taken").write_text("a file")
    try:
        loggers("nasty", log_dir="taken/runs")
    except LogDirectoryError as error:
        print(error)


def knows_no_other_process() -> None:
    """An interface of the program itself, which another process cannot import."""
    from dftrace_ai.loggers import BaseLogint

    class Own(BaseLogint):
        name = "own"

        def log_metrics(self, metrics: Any, step: int) -> None:
            Path("own.txt").open("a").write(f"{os.getpid() == own} {step}\n")

        def log_file(self, *args: object) -> None:
            pass

    own = os.getpid()
    logs = loggers("own")
    some(logs)
    print("trained")


# Data.


class Raising:
    shape = property(lambda self: 1 / 0)

    def __float__(self) -> float:
        raise OSError("no number today")


def logs_bad_data() -> None:
    """Whatever a training may hand over by mistake: all else of the call is logged."""
    import collections

    import torch

    logs = loggers("nasty", tracked_variables={"metric": ["loss", "odd", "missing"]})

    class LogsAgain:
        def __float__(self) -> float:
            logs.log_iter({"loss": -1.0}, 100)
            return 1.0

    class LogsItself:
        def __float__(self) -> float:
            logs.log_iter({"loss": self, "odd": self}, 200)
            return 2.0

    class Output(collections.OrderedDict[str, Any]):
        """As models of a well-known library return them."""

        def __getattr__(self, name: str) -> Any:
            return self[name]

    one = torch.ones(1)
    odd = [
        torch.ones(1, requires_grad=True),
        torch.ones(1, device="meta"),
        torch.ones(1).to_sparse(),
        torch.quantize_per_tensor(one, 0.5, 0, torch.quint8),
        torch.ones(1, dtype=torch.complex64),
        torch.ones(3),
        torch.ones(1, dtype=torch.bfloat16),
        float("nan"),
        float("inf"),
        10**400,
        -(10**400),
        True,
        "text",
        b"bytes",
        None,
        1 + 2j,
        Raising(),
        LogsAgain(),
        LogsItself(),
    ]
    for step, value in enumerate(odd):
        logs.log_iter({"loss": float(step), "odd": value, "mising": 1})
    logs.log_iter(Output(loss=one * 50))
    for data in ([1, 2], None, 7, "loss", object()):
        logs.log_iter(data)  # type: ignore[arg-type]
    logs.log_iter({"loss": 60.0}, torch.tensor(60))  # type: ignore[arg-type]
    logs.log_iter({"loss": 61.0}, "step")  # type: ignore[arg-type]
    logs.log_iter({"loss": 5.0}, 55)
    changed = torch.zeros(1)
    for _ in range(3):
        logs.log_iter({"loss": changed})
        changed += 1
    logs.log_epoch("epoch")  # type: ignore[arg-type]
    print("trained")


def logs_everything_bad() -> None:
    """The same where no variables are named, and what looks like a number is logged."""
    import torch

    logs = loggers()
    logs.log_iter({"loss": 1.0, "a": Raising(), "b": torch.ones(2), "c": "text", 5: 2.0})
    logs.log_iter({"loss": torch.ones((1, 1)), "d": torch.tensor(3), "e": [1]})
    print("trained")


def logs_from_everywhere(threads: int, calls: int) -> None:
    """From several threads at once, and from a signal handler meanwhile."""
    logs = loggers("nasty")
    signal.signal(signal.SIGALRM, lambda *_: logs.log_iter({"loss": -1.0}))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)

    def log() -> None:
        for _ in range(calls):
            logs.log_iter({"loss": 1.0})

    others = [threading.Thread(target=log) for _ in range(threads)]
    for thread in others:
        thread.start()
    log()
    for thread in others:
        thread.join()
    signal.setitimer(signal.ITIMER_REAL, 0)
    logs.end_log()
    print("trained")


def waits_for_each(how: str | None) -> None:
    """With `sync` a call returns when all trackers have taken what it logged."""
    options = {"phase": "log", "how": how} if how else {}
    logs = loggers("nasty", options=options, sync=True, limit_s=1.0 if how else 20.0)
    for step in range(5):
        logs.log_iter({"loss": float(step)})
        if not how:
            taken = Path("runs/default/run/nasty.txt").read_text().split()
            assert taken == [str(each) for each in range(step + 1)], taken
    print("trained")


def flushes() -> None:
    """After `flush` everything is where it belongs."""
    logs = loggers("nasty")
    for _ in range(3):
        some(logs)
        logs.flush()
        print(len(Path("runs/default/run/nasty.txt").read_text().split()))


def asks_for_the_tracker() -> None:
    """The tracker's own object is there where it is in this process."""
    from dftrace_ai.loggers.log import NotInProcessError

    here, there = loggers("nasty", in_process=True), loggers("nasty", run="other")
    nasty.Nasty.experiment = "its own object"
    print(here[1].experiment)
    for log in (there[1],):
        try:
            log.experiment  # noqa: B018
        except NotInProcessError as error:
            print(str(error)[:40])
    broken = loggers("nasty", run="b", in_process=True, options={"phase": "begin", "how": "raise_"})
    try:
        broken[1].experiment  # noqa: B018
    except NotInProcessError as error:
        print(str(error)[:40])
