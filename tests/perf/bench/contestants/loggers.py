"""`log_iter` of twenty numbers, for instruction counts."""

from __future__ import annotations

from typing import Any

from bench.loggers import hanging  # noqa: F401 - its trackers are known by this
from bench.spans.loops import Subject
from dftrace_ai.loggers import make_loggers

METRICS = 20


class Contestant:
    """Loggers to `local`, or to it, to the trace and to one in a process of its own."""

    version = ""

    def __init__(self, mode: str, workdir: str) -> None:
        config = {"log_dir": workdir, "status_line": False, "queue": 10_000_000}
        names = ("local",) if mode == "local" else ("local", "trace", "quiet")
        self._loggers = make_loggers({name: {"config": config} for name in names})

    def subjects(self) -> dict[str, Subject]:
        """Return what can be counted, by name."""
        data = {f"metric{number}": number / 7 for number in range(METRICS)}
        log = self._loggers.log_iter

        def loop(n: int) -> Any:
            for _ in range(n):
                log(data)

        def baseline(n: int) -> Any:
            for _ in range(n):
                pass

        return {"log_iter": Subject(loop, baseline)}

    def settle(self) -> None:
        """Wait until everything is delivered."""
        self._loggers.flush()

    def close(self) -> dict[str, int]:
        """End the loggers."""
        self._loggers.end_log()
        return {}
