"""Starts a process per contestant and has them run in turn, a round at a time."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.figures import Series
from bench.processes import Homes, environment

from .lineup import WORKERS, SpanBench, WorkerKind


class Worker:
    """A contestant's process at the other end of two pipes."""

    def __init__(self, name: str, kind: WorkerKind, homes: Homes, workdir: Path) -> None:
        self.name = name
        self.version = ""
        self.missing = ""
        self.process: subprocess.Popen[str] | None = None
        python = homes.python(kind.home)
        if python is None:
            self.missing = "no interpreter with the peers"
            return
        self.log_path = workdir / f"{name}.log"
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [python, "-m", "bench.spans.worker", kind.contestant, kind.mode, str(workdir)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=workdir,
                env=environment(kind.env),
            )

    def greet(self) -> None:
        """Wait until the process has set itself up, or says that its package is missing."""
        if self.process is None:
            return
        hello = self._answer()
        self.version = hello.get("version", "")
        self.missing = hello.get("missing", "")
        if self.missing:
            self.process.wait()
            self.process = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and wait for the answer; a dead process answers `missing`."""
        if self.process is None or self.process.stdin is None:
            return {"missing": self.missing}
        try:
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return self._died()
        return self._answer()

    def close(self) -> dict[str, Any]:
        """End the contestant; return what it says at its end."""
        answer = self.ask({"close": True})
        if self.process is not None:
            self.process.wait()
        return answer

    def _answer(self) -> dict[str, Any]:
        if self.process is None or self.process.stdout is None:
            return {"missing": self.missing}
        line = self.process.stdout.readline()
        if not line:
            return self._died()
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _died(self) -> dict[str, Any]:
        code = self.process.wait() if self.process else None
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        self.missing = f"process ended with {code}: {lines[-1] if lines else 'no message'}"
        self.process = None
        return {"missing": self.missing}


@contextmanager
def workers(names: list[str], homes: Homes) -> Iterator[dict[str, Worker]]:
    """Start the named workers together, each in a directory of its own that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        started: dict[str, Worker] = {}
        try:
            for name in names:
                workdir = Path(scratch) / name
                workdir.mkdir()
                started[name] = Worker(name, WORKERS[name], homes, workdir)
            for worker in started.values():
                worker.greet()
            yield started
        finally:
            for worker in started.values():
                if worker.process is not None and worker.process.poll() is None:
                    worker.process.kill()
                    worker.process.wait()


@dataclass
class Ledger:
    """What the workers said beside their timings."""

    versions: dict[str, str] = field(default_factory=dict)
    counts: list[dict[str, int]] = field(default_factory=list)


def run(benches: list[SpanBench], homes: Homes, generations: int, rounds: int) -> Ledger:
    """Fill the benches' series: every round runs each contestant once, in turn.

    All processes are started afresh in each generation, so that one process's memory layout does not decide.
    """
    ledger = Ledger()
    names = list(dict.fromkeys(entry.worker for item in benches for entry in item.entries))
    for item in benches:
        item.bench.series = [Series(entry.label) for entry in item.entries]
    for generation in range(generations):
        with workers(names, homes) as started:
            for item in benches:
                print(f"  {item.bench.id} ({generation + 1}/{generations})", file=sys.stderr)
                for number in range(min(rounds, -(-item.most_rounds // generations))):
                    _round(item, started, number)
            for worker in started.values():
                if worker.version:
                    ledger.versions[WORKERS[worker.name].package] = worker.version
            ledger.counts.append(started["ours"].close() if "ours" in started else {})
    return ledger


def _round(item: SpanBench, started: dict[str, Worker], number: int) -> None:
    # The order turns by one each round, so that nobody always runs after the same neighbour.
    turn = number % len(item.entries)
    order = list(range(len(item.entries)))
    for index in order[turn:] + order[:turn]:
        entry = item.entries[index]
        answer = started[entry.worker].ask({"subject": entry.subject})
        item.bench.take(entry.label, answer, "ns", cpu="cpu_ns")
