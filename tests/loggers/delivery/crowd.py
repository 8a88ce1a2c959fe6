"""Runs many small programs that log: `python crowd.py CASES RESULTS`, both files of JSON.

Each is a fork of this process, in which all is imported, and ends as a program does: it runs off the
end of this file, or is ended. It has a directory of its own, with its output in it.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

AT_ONCE = 4
# What a program that logs would load.
AT_ONCE_LOADED = (
    "concurrent.futures.thread",
    "multiprocessing.util",
    "subprocess",
    "dftrace_ai.loggers.trackers.local",
    "dftrace_ai.loggers.logger",
)
LIMIT_S = 240


def begin(case: dict[str, Any]) -> None:
    """Become the program: with its directory, its output and a closed door behind it."""
    os.setpgid(0, 0)
    os.chdir(case["folder"])
    for number, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(file, number)
        os.close(file)


def wait_for_one(running: dict[int, tuple[str, float]], statuses: dict[str, Any]) -> None:
    """Wait until one has ended; who takes too long is ended."""
    while True:
        for number, (name, begun_s) in list(running.items()):
            found, status = os.waitpid(number, os.WNOHANG)
            if found:
                del running[number]
                statuses[name] = os.waitstatus_to_exitcode(status)
                return
            if time.monotonic() - begun_s > LIMIT_S:
                os.killpg(number, signal.SIGKILL)
                os.waitpid(number, 0)
                del running[number]
                statuses[name] = "it hangs"
                return
        time.sleep(0.01)


def fork_all(cases: list[dict[str, Any]], results: Path) -> dict[str, Any] | None:
    """Run all cases; in the fork of one, return it."""
    running: dict[int, tuple[str, float]] = {}
    statuses: dict[str, Any] = {}
    for case in cases:
        while len(running) >= AT_ONCE:
            wait_for_one(running, statuses)
        number = os.fork()
        if not number:
            begin(case)
            return case
        running[number] = (case["name"], time.monotonic())
    while running:
        wait_for_one(running, statuses)
    results.write_text(json.dumps(statuses))
    return None


if __name__ == "__main__":
    CASES = json.loads(Path(sys.argv[1]).read_text())
    for name in AT_ONCE_LOADED:
        import_module(name)
    if any(case.get("torch") for case in CASES):
        for name in ("torch", "torch.utils.data", "torch.utils.tensorboard"):
            import_module(name)
    import programs

    gc.freeze()  # no fork collects, and copies, as it ends what is the same in all of them
    if chosen := fork_all(CASES, Path(sys.argv[2])):
        programs.named(chosen["program"])(**chosen["options"])
