"""Programs that end, each in a way of its own; `with_loggers` is false for the same one without."""

from __future__ import annotations

import atexit
import gc
import io
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from programs.common import SOON_S, STEPS, NoLoggers, loggers, patient, some, wait_for


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


def is_killed_unsaid() -> None:
    logs = loggers()
    for step in range(150):
        logs.log_iter({"loss": float(step)})
        time.sleep(0.01)
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


def is_called_again_and_again(what: str) -> None:
    """A signal comes again and again while its handler waits for a tracker that hangs."""
    phase = "end" if what == "end_log" else "log"
    logs = loggers("nasty", options={"phase": phase, "how": "hang"}, limit_s=2.0)
    some(logs)
    if what == "end_log":
        wait_for(lambda: logs[1]._entry.delivery.tracker.standing().taken == STEPS)
    else:
        wait_for(Path("runs/default/run/processes.txt").exists)
    signal.signal(signal.SIGALRM, lambda *_: getattr(logs, what)())
    signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
    getattr(logs, what)()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print("trained")


def is_terminated_again_and_again() -> None:
    """Somebody is impatient: SIGTERM comes while the first is obeyed."""
    logs = loggers("nasty")
    some(logs)
    impatient = [sys.executable, "-c", IMPATIENT, str(os.getpid())]
    subprocess.Popen(impatient)
    time.sleep(SOON_S)


IMPATIENT = """
import os, signal, sys, time
try:
    while True:
        os.kill(int(sys.argv[1]), signal.SIGTERM)
        time.sleep(0.002)
except ProcessLookupError:
    pass
"""


class Trainer:
    """Ends its loggers with itself, which is wherever the collector finds it."""

    def __init__(self, logs: Any) -> None:
        self.logs, self.itself = logs, self

    def __del__(self) -> None:
        self.logs.flush()
        self.logs.end_log("failed")


class Collecting(io.StringIO):
    """A stream on which the collector is at work."""

    def write(self, text: str) -> int:
        sys.stderr = sys.__stderr__
        gc.collect()
        return len(text)


def ends_in_a_finalizer(with_loggers: bool, how: str) -> None:
    """On a thread that the end waits for: it would wait for itself."""
    gc.disable()
    if how == "delivering":
        options = {"phase": "log", "how": "collect_garbage", "call": STEPS}
        settings: dict[str, Any] = {"in_process": True, "options": options}
    else:
        settings = {"status_line": True}
    logs = loggers("nasty", limit_s=SOON_S, **settings) if with_loggers else NoLoggers()
    some(logs, STEPS - 1)
    logs.flush()
    Trainer(logs)
    if how == "converting" and with_loggers:
        sys.stderr = Collecting()
    logs.log_iter({"loss": STEPS - 1.0})
    if how == "converting":
        logs.log_epoch()
    wait_for(lambda: logs.status != "running")


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


class Slow:
    """A filter of the program's: what is about to be told when the program ends is not told yet."""

    def __init__(self) -> None:
        self.is_asked = threading.Event()

    def __call__(self, record: logging.LogRecord) -> bool:
        if "lost" in record.args or "has not taken" in record.args:
            self.is_asked.set()
            time.sleep(0.3)
        return True


def ends_while_a_loss_is_told(how: str) -> None:
    """The program is at its end when another thread begins to tell of a loss."""
    slow = Slow()
    logging.getLogger("dftrace_ai").addFilter(slow)
    logs = loggers("nasty", options={"phase": "begin", "how": "raise_"})
    some(logs)
    logs.flush()
    if how == "dropped":
        del logs
        gc.collect()
    else:
        threading.Thread(target=logs.end_log, daemon=True).start()
    slow.is_asked.wait()


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
