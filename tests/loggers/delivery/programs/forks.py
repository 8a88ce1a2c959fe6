"""Programs that fork, spawn and start others while they log."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from programs.common import STEPS, loggers, some, wait_for

from dftrace_ai.loggers import BaseLogint

CHILD_LIMIT_S = 30.0


class Locking(BaseLogint):
    """Has a lock while it is called, and wants it in every child, as who closes buffered files."""

    name = "locking"
    own_process = False
    forking = threading.Event()
    called = threading.Event()

    def open(self) -> None:
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self.close)

    def close(self) -> None:
        os._exit(0 if self.lock.acquire(timeout=CHILD_LIMIT_S) else 1)

    def log_metrics(self, metrics: Any, step: int) -> None:
        with self.lock:
            self.called.set()
            self.forking.wait()
            # A fork that does not wait comes now.
            time.sleep(0.05)

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        raise NotImplementedError


class Hanging(BaseLogint):
    """Hangs in its first call."""

    name = "hanging"
    own_process = False
    called = threading.Event()

    def log_metrics(self, metrics: Any, step: int) -> None:
        self.called.set()
        threading.Event().wait()

    def log_file(self, name: str, data: bytes, suffix: str, step: int) -> None:
        raise NotImplementedError


def forks_within_a_call() -> None:
    """Children of a training whose tracker is in the middle of a call, on another thread."""
    logs = loggers("locking")
    logs.flush()
    os.register_at_fork(before=Locking.forking.set)
    for _ in range(5):
        Locking.forking.clear()
        Locking.called.clear()
        logs.log_iter({"loss": 1.0})
        Locking.called.wait()
        assert os.waitpid(os.fork(), 0)[1] == 0
    Locking.forking.set()


def forks_beside_a_hung_call() -> None:
    """A fork does not wait for a call that does not end, but once."""
    logs = loggers("hanging", limit_s=1.0)
    logs.log_iter({"loss": 1.0})
    Hanging.called.wait()
    for _ in range(200):
        child = os.fork()
        if not child:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0


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
