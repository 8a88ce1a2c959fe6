"""Starts a process per contestant and has them run in turn, a round at a time."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import Homes, Worker
from bench.series import Series

from .lineup import WORKERS, SpanBench


@contextmanager
def workers(names: list[str], homes: Homes) -> Iterator[dict[str, Worker]]:
    """Start the named workers together, each in a directory of its own that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        started: dict[str, Worker] = {}
        try:
            for name in names:
                workdir = Path(scratch) / name
                workdir.mkdir()
                kind = WORKERS[name]
                command = ["bench.spans.worker", kind.contestant, kind.mode, str(workdir)]
                started[name] = Worker(homes.python(kind.home), command, workdir, kind.env)
            for worker in started.values():
                worker.greet()
            yield started
        finally:
            for worker in started.values():
                worker.kill()


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
            for name, worker in started.items():
                if worker.version:
                    ledger.versions[WORKERS[name].package] = worker.version
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
