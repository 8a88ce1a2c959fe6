"""The process that starts the victims and buries them: python -m stress.nursery.

It reads commands from its standard input and answers each with a line. A victim is either a fork of
it, which costs little since all has been imported, or an interpreter of its own. As the reaper of all
below it, it also knows when the last of a victim's children, and their children, has gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import clean_environment

from stress.account import Place

PR_SET_CHILD_SUBREAPER = 36
LIMIT_S = 120
# All that a run or a recovery would import when it begins.
AT_ONCE = (
    "dftrace_ai.config.sources",
    "dftrace_ai.spools.recovery",
    "dftrace_ai.run.core_settings",
    "stress.victims.work",
)


class Nursery:
    """The process, as the tests see it."""

    def __init__(self) -> None:
        environment = clean_environment()
        here = str(Path(__file__).resolve().parents[1])
        paths = [here, environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        environment["PYTHONDONTWRITEBYTECODE"] = "1"
        self._process = subprocess.Popen(
            [sys.executable, "-m", "stress.nursery"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, command: str, **details: Any) -> Any:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"command": command, **details}) + "\n")
        stdin.flush()
        answer = stdout.readline()
        assert answer, "the nursery is gone"
        return json.loads(answer)

    def load(self, module: str) -> None:
        """Import a module that forked victims then have."""
        self._ask("load", module=module)

    def start(self, name: str, place: Place, *, fresh: bool = False, **options: Any) -> Victim:
        """Start the victim `name`, by a fork or, if `fresh`, in an interpreter of its own."""
        command = "fresh" if fresh else "fork"
        pid = self._ask(command, name=name, folder=str(place.folder), options=options)
        return Victim(self, place, pid)

    def bury(self, pid: int) -> int:
        """Wait until nobody is left below the nursery; gives the status that `pid` ended with."""
        status = self._ask("bury", pid=pid)
        assert status is not None, "somebody below the victim does not end"
        return int(status)

    def clear(self) -> None:
        """Kill whoever is left below the nursery."""
        self._ask("clear")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


@dataclass(frozen=True)
class Victim:
    """A process that was started, with whatever it starts itself."""

    nursery: Nursery
    place: Place
    pid: int

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal, and to nobody else."""
        os.kill(self.pid, number)

    def kill_all(self) -> int:
        """Kill it and its children; gives its status."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        return self.ended()

    def ended(self) -> int:
        """Wait for it and for all below it; gives its status, negative for a signal."""
        return self.nursery.bury(self.pid)

    def has_state(self, state: str) -> bool:
        """Whether the kernel gives its state so: "Z" for one that has ended, "T" for stopped."""
        stat = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8", errors="replace")
        return stat.rpartition(")")[2].split()[0] == state

    @property
    def said(self) -> str:
        """What it wrote to its standard streams."""
        return (self.place.folder / "said").read_text(encoding="utf-8", errors="replace")


def wait_until(condition: Any) -> None:
    """Look again and again until it is so."""
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < limit, "does not come about"
        time.sleep(0.001)


_statuses: dict[int, int] = {}


def _bury(pid: int) -> int | None:
    limit = time.monotonic() + LIMIT_S
    while True:
        try:
            gone, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return _statuses.pop(pid)
        if gone:
            _statuses[gone] = os.waitstatus_to_exitcode(raw)
        else:
            if time.monotonic() > limit:
                _kill_everybody()
                return None
            time.sleep(0.001)


def _kill_everybody() -> None:
    """Leaves nobody behind, those included whose parents are gone."""
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]


def _redirect(folder: str) -> None:
    said = os.open(Path(folder) / "said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(said, 1)
    os.dup2(said, 2)


def _fresh(order: dict[str, Any]) -> int:
    with open(Path(order["folder"]) / "said", "wb") as said:
        command = [sys.executable, "-m", "stress.victims", order["name"], order["folder"]]
        victim = subprocess.Popen(
            [*command, json.dumps(order["options"])],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
    pid = victim.pid
    victim.returncode = 0  # it is buried here, and not by Popen
    return pid


def serve() -> dict[str, Any] | None:
    """Answer the commands; comes back in each forked victim, with its order."""
    for module in AT_ONCE:
        __import__(module)
    gc.freeze()  # no fork collects, and copies, as it ends what is the same in all of them
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        for line in sys.stdin:
            order = json.loads(line)
            answer: Any = None
            match order["command"]:
                case "load":
                    __import__(order["module"])
                    gc.freeze()
                case "fresh":
                    answer = _fresh(order)
                case "clear":
                    _kill_everybody()
                    _statuses.clear()
                case "bury":
                    answer = _bury(order["pid"])
                case "fork":
                    answer = os.fork()
                    if answer == 0:
                        os.setsid()
                        _redirect(order["folder"])
                        return order
            print(json.dumps(answer), flush=True)
    finally:
        _kill_everybody()
    return None


if __name__ == "__main__":
    its_order = serve()
    if its_order is not None:
        from stress.victims import run

        run(its_order["name"], its_order["folder"], its_order["options"])
