"""Programs that never ran, of which it is known which line is slow, sampled as the recorder does."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from analysis.lines.made_stacks import Called, MadeStacks
from analysis.why.made_runs import MS, START_NS, Lines

MODULE: Called = ("<module>", "train.py", 120)
MAIN: Called = ("main", "train.py", 57)
LOADER: Called = ("_worker_loop", "torch/utils/data/_utils/worker.py", 0, True)
GETITEM: Called = ("Data.__getitem__", "data.py", 41)
FORWARD: Called = ("Module._call_impl", "torch/nn/modules/module.py", 0, True)


class Thread:
    """What a thread does; a sample is taken every half to one and a half periods."""

    def __init__(self, lines: Lines, hz: float, seed: int, cpu: float = 1.0) -> None:
        self.lines, self.hz, self.random, self.cpu = lines, hz, random.Random(seed), cpu
        self.now = 0.0
        self.stacks = MadeStacks(lines, START_NS, hz) if hz else None
        if self.stacks and cpu < 1:
            self.stacks.ready_us = 0.0
        self.next = self.tick(0.0)
        self.used = self.cpu_before = 0.0

    def tick(self, ms: float) -> float:
        return ms + self.random.uniform(0.5, 1.5) * 1000 / self.hz if self.hz else 1e18

    def do(self, ms: float, *stack: Called, cpu: float = 1.0, let_run: bool = True) -> None:
        """Spends so long with such a stack, the outermost first."""
        until = self.now + ms * self.random.lognormvariate(0, 0.03)
        if self.stacks and self.cpu < 1:
            self.stacks.ready_us += (until - self.now) * cpu * (1 - self.cpu) * 1000
        cpu *= self.cpu
        while self.next <= until:
            self.used += (self.next - self.now) * cpu
            self.now = self.next
            if let_run and self.stacks:
                us = round((self.used - self.cpu_before) * 1000)
                self.stacks.sample(START_NS + int(self.now * MS), stack, us)
                self.cpu_before = self.used
            self.next = self.tick(self.next)
        self.used += (until - self.now) * cpu
        self.now = until

    @contextmanager
    def span(self, cat: str, name: str, **args: object) -> Iterator[None]:
        start = self.now
        yield
        self.lines.say(cat, name, start * MS, (self.now - start) * MS, **args)

    def write(self, folder: Path) -> None:
        if self.stacks:
            self.stacks.end()
        self.lines.footer(**({"samples": self.stacks.samples} if self.stacks else {}))
        self.lines.write(folder / f"t-host-{self.lines.pid}.pfw", 10**9)


@dataclass
class Program:
    """A training; times in milliseconds, of what is planted with its stack below the loop."""

    steps: int = 150
    hz: float = 100
    cpu: float = 1.0  # what the machine has of a processor for each thread
    step_ms: float = 20.0
    top: Sequence[Called] = (MODULE, MAIN)
    item: Sequence[tuple[float, float, Sequence[Called]]] = ()  # ms, cpu, stack, of each item
    collate: Sequence[tuple[float, float, Sequence[Called]]] = ()
    workers: int = 0
    batch: int = 8
    loop: Sequence[tuple[float, float, Sequence[Called]]] = ()  # in each step, in no span
    optimizer: Sequence[tuple[float, float, Sequence[Called]]] = ()
    log: Sequence[tuple[float, float, Sequence[Called]]] = ()  # in a span `other.log`
    at: dict[int, tuple[float, float, Sequence[Called]]] = field(default_factory=dict)
    every: int = 0
    every_ms: tuple[float, Sequence[Called]] = (0.0, ())
    since: int = 0
    not_run: bool = False

    def write(self, folder: Path, seed: int = 1) -> Path:
        return write_job(folder, [self], seed)

    def load(self, main: Thread, staff: list[Thread], number: int) -> None:
        with main.span("dataloader", "fetch.iter", step=number):
            main.do(0.3, *self.top, ("next", "torch/utils/data/dataloader.py", 0, True))
            if not staff:
                self.batch_of(main, (*self.top,))
            else:
                worker = staff[number % len(staff)]
                self.batch_of(worker, (MODULE, LOADER))
                if worker.now > main.now:
                    wait = ("Queue.get", "multiprocessing/queues.py", 0, True)
                    main.do(worker.now - main.now, *self.top, wait, cpu=0.0)

    def line(self, number: int) -> list[Called]:
        """The stack of the loop, so many lines further down."""
        *outer, (function, file, line, *library) = self.top
        moved = (function, file, line if library else line + number, *library)
        return [*outer, moved]

    def batch_of(self, thread: Thread, top: Sequence[Called]) -> None:
        for _ in range(self.batch if self.item else 0):
            with thread.span("data", "item"):
                for ms, cpu, stack in self.item:
                    thread.do(ms, *top, GETITEM, *stack, cpu=cpu)
        if self.collate:
            with thread.span("data", "preprocess.collate"):
                for ms, cpu, stack in self.collate:
                    thread.do(ms, *top, *stack, cpu=cpu)

    def compute(self, main: Thread, number: int) -> None:
        tags = {"step": number}
        with main.span("compute", "forward", **tags):
            main.do(0.4 * self.step_ms, *self.line(1), FORWARD)
        with main.span("compute", "backward", **tags):
            main.do(0.5 * self.step_ms, *self.line(2), ("backward", "torch/_tensor.py", 0, True))
        with main.span("compute", "step", **tags):
            main.do(
                0.1 * self.step_ms, *self.line(3), ("Adam.step", "torch/optim/adam.py", 0, True)
            )
            for ms, cpu, stack in self.optimizer:
                main.do(ms, *self.top, *stack, cpu=cpu)
        if self.log:
            with main.span("other", "other.log", **tags):
                for ms, cpu, stack in self.log:
                    main.do(ms, *self.top, *stack, cpu=cpu)
        if number >= self.since:
            for ms, cpu, stack in self.loop:
                main.do(ms, *self.top, *stack, cpu=cpu)
        if number in self.at:
            ms, cpu, stack = self.at[number]
            main.do(ms, *self.top, *stack, cpu=cpu, let_run=not self.not_run)
        if self.every and number % self.every == self.every - 1:
            ms, stack = self.every_ms
            main.do(ms, *self.top, *stack)


def write_job(folder: Path, programs: Sequence[Program], seed: int = 1) -> Path:
    """Writes the traces of ranks, which meet at the end of each step where there are several."""
    world, mains, staffs = len(programs), [], []
    for rank, program in enumerate(programs):
        lines = Lines(100 + rank, rank=rank, world_size=world)
        mains.append(Thread(lines, program.hz, seed + 100 * rank, program.cpu))
        staffs.append(
            [
                Thread(
                    Lines(200 + 10 * rank + at, ppid=100 + rank),
                    program.hz,
                    seed + at + 1,
                    program.cpu,
                )
                for at in range(program.workers)
            ]
        )
        mains[-1].do(100, *program.top)
    reduce = ("all_reduce", "torch/distributed/distributed_c10d.py", 0, True)
    for number in range(programs[0].steps):
        begun = [main.now for main in mains]
        for program, main, staff in zip(programs, mains, staffs, strict=True):
            program.load(main, staff, number)
            program.compute(main, number)
        last = max(main.now for main in mains)
        for program, main, start in zip(programs, mains, begun, strict=True):
            if world > 1:
                with main.span("comm", "all_reduce", step=number):
                    main.do(last - main.now + 1, *program.top, reduce, cpu=0)
            main.lines.say("pipeline", "step", start * MS, (main.now - start) * MS, step=number)
    for thread in (*mains, *(one for staff in staffs for one in staff)):
        thread.write(folder)
    return folder
