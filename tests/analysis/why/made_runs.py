"""Traces of trainings that never ran, of which it is known what makes them slow, or that nothing does."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis.trace_lines import HOST_HASH, TraceLines

START_NS = 1_000_000_000_000_123
MS = 1_000_000


class Lines(TraceLines):
    """The lines of a process, without those of categories that nobody has annotated."""

    def __init__(self, pid: int, without: str = "", **header: Any) -> None:
        super().__init__(pid)
        self.without = without
        # The header of the base class says nothing of ranks.
        self.lines = [line for line in self.lines if '"name":"dftrace"' not in line]
        facts = {"version": "0.1.0", "format": 1, "hhash": self.host_hash, "host": "host"}
        facts |= {"pid": pid, "ppid": 1, "run": "00ff", "time_base_us": 1_762_560_000_000_000}
        facts |= {"timestamps": "relative", "clock": "monotonic"}
        self.meta("dftrace", {**facts, "cpus": 16, "cores": 8, "memory_bytes": 1 << 36, **header})

    def say(self, cat: str, name: str, start: float, length: float, parent: int = 0, **args: Any):
        if cat != self.without:
            self.span(name, cat, START_NS + int(start), max(1, int(length)), p_idx=parent, **args)

    def sample(self, name: str, at: float, **values: float) -> None:
        if self.without != "counter":
            self.counter(name, START_NS + int(at), **values)


@dataclass
class Training:
    """What a training does; times in milliseconds."""

    steps: int = 100
    epochs: int = 2
    step_ms: float = 20.0
    workers: int = 4
    batch: int = 8
    item_ms: float = 1.0
    collate_ms: float = 0.3
    io: float = 0.0
    data_told: bool = True
    jitter: float = 0.05
    hiccups: float = 0.01
    drift: float = 0.0
    evaluate: int = 0
    told: bool = True
    checkpoint: tuple[int, float] | None = None
    comm_ms: float = 0.0
    hidden_comm_ms: float = 0.0
    transfer_ms: float = 0.3
    optimizer: float = 0.1
    gap_ms: float = 0.2
    log_ms: float = 0.0
    around: bool = False
    take_over_ms: float = 0.15
    slow: dict[int, float] = field(default_factory=dict)
    warm: int = 0
    warm_ms: float = 0.0
    every: int = 0
    every_ms: float = 0.0
    garbage: bool = False  # what takes longer now and then is collecting it
    slower: float = 0.0
    since: tuple[int, float] | None = None
    where: str = "forward"
    start_ms: float = 200.0
    leak: float = 0.0
    saturating: float = 0.0
    sawtooth: float = 0.0
    rare: int = 0
    rare_ms: float = 0.0
    accumulate: int = 1
    world: int = 1
    marks: bool = False
    blocks: bool = True
    loop: bool = True
    numbered: bool = True
    spawn_ms: float = 30.0
    persistent: bool = True
    contention: tuple[int, int, float] | None = None
    bimodal: float = 0.0
    tail: float = 0.0
    crowded: bool = False
    # What its workers use where it says so for them, and what of the processors waits for disks.
    children: float | None = None
    io_wait: float = 0.0
    gpu: dict[str, float] = field(default_factory=dict)
    # The first batch of each epoch, its first steps, what lies between epochs, behind each step,
    # and an evaluation there of which only the model's mode tells.
    first_batch_ms: float = 0.0
    first_steps: tuple[int, float] | None = None
    between_ms: float = 0.0
    behind_ms: float = 0.0
    by_mode: int = 0
    save_ms: float = 0.0
    kinds: tuple[float, float] | None = None

    def write(self, folder: Path, seed: int, without: str = "") -> Path:
        """Writes the traces of all its processes into a folder."""
        return _Writer(self, folder, seed, without).write()


class _Writer:
    def __init__(self, training: Training, folder: Path, seed: int, without: str) -> None:
        self.t, self.folder, self.random = training, folder, random.Random(seed)
        self.main = Lines(100, without, rank=0, world_size=training.world)
        self.staff = [Lines(200 + w, without, ppid=100) for w in range(training.workers)]
        self.noise = 0.0
        self.now = 0.0
        self.number = 0
        self.in_epoch = 0
        self.next_sample = 0.0
        self.grown = 0.0

    def some(self, ms: float) -> float:
        """A time, in nanoseconds, that is about so long."""
        return max(1.0, MS * ms * (1 + self.noise) * self.random.lognormvariate(0, self.t.jitter))

    def write(self) -> Path:
        t = self.t
        self.main.say("data", "preprocess", self.now, t.start_ms * MS)
        self.now += t.start_ms * MS
        for epoch in range(t.epochs):
            self.epoch(epoch)
            if t.evaluate:
                self.evaluation(epoch)
            self.between()
        if t.around:
            self.main.say("app", "work", 0.0, self.now)
        for lines in (self.main, *self.staff):
            lines.footer()
            lines.write(self.folder / f"t-host-{lines.pid}.pfw", 10**9)
        return self.folder

    def between(self) -> None:
        t = self.t
        if t.save_ms:
            self.spend("checkpoint", "capture", self.some(t.save_ms), {})
        for _ in range(t.by_mode):
            self.spend("compute", "forward.eval", self.some(t.step_ms * 0.3), {})
            self.now += self.some(t.step_ms * 0.2)
        if t.between_ms:
            self.now += self.some(t.between_ms)

    def batches(self, epoch: int) -> Iterator[tuple[int, float]]:
        """When the workers have each batch, as far as they may be ahead."""
        t = self.t
        late = t.spawn_ms * MS if not t.persistent or not epoch else 0.0
        free, ready, order = [self.now + late] * t.workers, {}, 0
        for step in range(t.steps):
            while order < min(step + 2 * t.workers, t.steps):
                worker = order % t.workers
                at = max(free[worker], self.now if step else 0.0)
                at = self.loaded(self.staff[worker], at, epoch * t.steps + order)
                ready[order] = free[worker] = at
                order += 1
            yield step, ready[step]

    def loaded(self, lines: Lines, at: float, number: int, **tags: Any) -> float:
        """Writes the work of a batch; returns when it is done."""
        t = self.t
        tags = tags or {"epoch": 7, "step": 3}  # of the parent when it forked
        for item in range(t.batch):
            length = self.some(t.item_ms)
            if t.rare and number % t.rare == t.rare - 1 and item == 0:
                length += t.rare_ms * MS
            if t.data_told:
                lines.say("data", "item", at, length, index=number * t.batch + item, **tags)
                parent = lines.last_id
                if t.io:
                    lines.say("data", "data.io.read", at + length * 0.02, length * t.io, parent)
            at += length + 5000
        length = self.some(t.collate_ms)
        if t.data_told:
            lines.say("data", "preprocess.collate", at, length, **tags)
        return at + length

    def epoch(self, epoch: int) -> None:
        t, parent = self.t, 9_000_000 + epoch
        ready = self.batches(epoch) if t.workers else ((step, None) for step in range(t.steps))
        for step, at in ready:
            self.number += 1
            self.noise = 0.9 * self.noise + self.random.gauss(0, t.drift)
            tags = {"epoch": epoch, "step": step} if t.numbered else {}
            if at is None:
                done = self.loaded(self.main, self.now + 20_000, self.number - 1, step=-1)
                wait = done + 20_000 - self.now
            else:
                wait = max(at - self.now, 0.0)
            wait += self.some(t.take_over_ms)
            wait += self.some(t.first_batch_ms) if t.first_batch_ms and not step else 0.0
            if t.loop:
                self.main.say(
                    "dataloader", "fetch.iter", self.now, wait, parent, count=step + 1, **tags
                )
            self.now += wait
            body = self.now
            self.in_epoch = step
            self.body(tags)
            self.now += self.some(t.gap_ms)
            length = self.now - body
            if t.loop and t.blocks:
                self.main.say(
                    "dataloader", "fetch.block", body, length, parent, count=step + 1, **tags
                )
            if t.marks:
                self.main.say("pipeline", "step", body, length, **tags)
            if t.behind_ms:
                self.now += self.some(t.behind_ms)
            self.sample()

    def body(self, tags: dict[str, int]) -> None:
        t, n = self.t, self.number
        extra = t.warm_ms if n <= t.warm else 0.0
        extra += t.every_ms if t.every and n % t.every == 0 else 0.0
        extra += t.slow.get(n, 0.0)
        crowd = t.contention[2] if t.contention and t.contention[0] < n <= t.contention[1] else 1.0
        crowd *= 1 + t.bimodal * (self.random.random() < 0.4)
        crowd *= 1 + t.tail * (self.random.paretovariate(2.5) - 1)
        if t.first_steps and self.in_epoch < t.first_steps[0]:
            extra += t.first_steps[1]
        kind = t.kinds[1] if t.kinds and self.random.random() < t.kinds[0] else 1.0
        grow = kind + t.slower * n + (t.since[1] if t.since and n > t.since[0] else 0.0)
        hiccup = self.random.expovariate(1 / 8.0) if self.random.random() < t.hiccups else 0.0
        if t.transfer_ms:
            self.spend("device", "transfer", self.some(t.transfer_ms), tags)
        for cat, name, share in (
            ("compute", "forward", 0.3),
            ("compute", "backward", 0.7 - t.optimizer),
            ("compute", "step", t.optimizer),
        ):
            if name == "step" and n % t.accumulate:
                continue
            whole = t.step_ms * share * crowd * (t.accumulate if name == "step" else 1)
            length = self.some(whole * (grow if name == t.where else 1))
            length += extra * MS * (name == t.where) + hiccup * MS * (name == "backward")
            if name == "backward" and t.comm_ms:
                comm = self.some(t.comm_ms)
                self.main.say("comm", "all_reduce", self.now + length, comm, **tags)
                length += comm + 5000
            if name == "backward" and t.hidden_comm_ms:
                length += self.some(t.hidden_comm_ms)
            if t.garbage and extra and name == t.where:
                self.main.say("host", "gc", self.now + 1000, extra * MS, **tags)
            self.spend(cat, name, length, tags)
        if t.log_ms:
            self.spend("other", "other.log", self.some(t.log_ms), tags)
        if t.where == "nowhere":
            if t.garbage and extra:
                self.main.say("host", "gc", self.now, extra * MS, **tags)
            self.now += extra * MS
        if t.checkpoint and n % t.checkpoint[0] == 0:
            self.spend("checkpoint", "capture", self.some(t.checkpoint[1]), tags)

    def spend(self, cat: str, name: str, length: float, tags: dict[str, int]) -> None:
        self.main.say(cat, name, self.now, length, **tags)
        self.now += length

    def sample(self) -> None:
        t = self.t
        self.grown += t.leak
        while self.next_sample < self.now:
            level = 2e9 + self.grown + t.sawtooth * (self.number % 40) / 40
            level += t.saturating * (1 - 2.718 ** (-self.next_sample / (500 * MS)))
            level += self.random.gauss(0, 3e6)
            self.main.sample("memory bytes", self.next_sample, used=10e9, process=int(level))
            system = 97.0 if t.crowded else 30.0
            cpu = {"system": system, "process": 100.0, "io wait": t.io_wait}
            if t.children is not None:
                cpu["children"] = t.children
            self.main.sample("cpu %", self.next_sample, **cpu)
            if t.gpu:
                busy, power, heat = (t.gpu[name] for name in ("busy", "power", "heat"))
                throttled = {"power 0": power > self.random.random(), "heat 0": heat}
                self.main.sample("GPU %", self.next_sample, **{"busy 0": busy})
                self.main.sample("GPU throttled", self.next_sample, **throttled)
            self.next_sample += 50 * MS
        if t.crowded and t.children is None and not self.number % 7:
            for lines in self.staff:
                lines.sample("cpu %", self.now, system=97.0, process=50.0)

    def evaluation(self, epoch: int) -> None:
        t, begin = self.t, self.now
        tags = {"epoch": epoch, "step": t.steps - 1} if t.numbered else {}
        for count in range(1, t.evaluate + 1):
            wait, length = self.some(0.2), self.some(t.step_ms * 0.3)
            for name, at, took in (
                ("fetch.iter", self.now, wait),
                ("fetch.block", self.now + wait, length + 10_000),
            ):
                self.main.say("dataloader", name, at, took, 9_000_500 + epoch, count=count, **tags)
            self.main.say("compute", "forward", self.now + wait, length, **tags)
            self.now += wait + length + 12_000
        if t.told:
            self.main.say("pipeline", "evaluate", begin, self.now - begin)


def write_ranks(folder: Path, trainings: Iterable[Training]) -> None:
    """Writes the traces of ranks, each on a host of its own, into folders `rank0`, `rank1`, ..."""
    for rank, training in enumerate(trainings):
        for file in training.write(folder / f"rank{rank}", rank + 1).glob("*.pfw"):
            text = file.read_text("utf-8").replace('"rank":0,', f'"rank":{rank},')
            # Processes of other hosts may have the same numbers.
            text = text.replace('"host":"host"', f'"host":"h{rank}"')
            file.write_text(text.replace(HOST_HASH, f"{rank:016x}"), "utf-8")


T = Training
# What is planted: kind and cause; the cause of all but input-bound is the part where it is.
PLANTED: dict[str, tuple[str, Training]] = {
    "saturated workers": ("input-bound/workers", T(item_ms=20)),
    "saturated workers, mild": ("input-bound/workers", T(item_ms=13)),
    "saturated workers, at the edge": ("input-bound/workers", T(item_ms=12.2)),
    "saturated workers, short passes": (
        "input-bound/workers",
        T(item_ms=30, workers=2, steps=4, epochs=16),
    ),
    "saturated workers, short passes of bursts": (
        "input-bound/workers",
        T(item_ms=60, workers=3, steps=6, epochs=8),
    ),
    "too few workers": ("input-bound/workers", T(item_ms=6, workers=1)),
    "saturated workers, steps marked": ("input-bound/workers", T(item_ms=20, marks=True)),
    "saturated workers, no bodies": ("input-bound/workers", T(item_ms=20, blocks=False)),
    "saturated workers, accumulating": ("input-bound/workers", T(item_ms=20, accumulate=4)),
    "inline": ("input-bound/inline", T(workers=0)),
    "inline, no bodies": ("input-bound/inline", T(workers=0, item_ms=2, blocks=False)),
    "collate": ("input-bound/collate", T(collate_ms=120)),
    "collate inline": ("input-bound/collate", T(workers=0, item_ms=0.1, collate_ms=9)),
    "disk": ("input-bound/disk", T(item_ms=20, io=0.9)),
    "disk inline": ("input-bound/disk", T(workers=0, item_ms=2, io=0.9)),
    "slow items": ("input-bound/slow-item", T(rare=23, rare_ms=900)),
    "slow items on a busy machine": (
        "input-bound/slow-item",
        T(rare=23, rare_ms=900, take_over_ms=30),
    ),
    "workers start": (
        "input-bound/start-up",
        T(persistent=False, spawn_ms=400, epochs=10, steps=20),
    ),
    "idle workers": ("input-bound/idle-workers", T(take_over_ms=7)),
    "nothing told of the loader": ("input-bound/", T(item_ms=20, data_told=False)),
    "communication": ("communication-bound/", T(comm_ms=8, world=4)),
    "communication, mild": ("communication-bound/", T(comm_ms=3.5, world=4)),
    "communication, at the edge": ("communication-bound/", T(comm_ms=3, world=4)),
    "copies": ("transfer-bound/", T(transfer_ms=5)),
    "copies, mild": ("transfer-bound/", T(transfer_ms=3.2)),
    "optimizer": ("optimizer-heavy/", T(step_ms=30, optimizer=0.69)),
    "optimizer, accumulating": ("optimizer-heavy/", T(accumulate=4, optimizer=0.69, step_ms=10)),
    "checkpoints": ("checkpoint-bound/", T(checkpoint=(20, 100))),
    "checkpoints, rare": ("checkpoint-bound/", T(checkpoint=(60, 300))),
    "checkpoints, at the edge": ("checkpoint-bound/", T(checkpoint=(25, 45))),
    "heavy evaluation": ("evaluation-heavy/", T(evaluate=200, steps=60, epochs=4)),
    "heavy evaluation, not annotated": (
        "evaluation-heavy/",
        T(evaluate=200, steps=60, epochs=4, told=False),
    ),
    "start": ("start-up-heavy/", T(start_ms=40_000, steps=500, epochs=3)),
    "a sampler that prepares each epoch": (
        "input-bound/start-up",
        T(workers=0, item_ms=0.1, first_batch_ms=400, epochs=8, steps=20),
    ),
    "a sampler that prepares each epoch, workers that stay": (
        "input-bound/start-up",
        T(first_batch_ms=400, epochs=8, steps=20),
    ),
    "a sampler that prepares each epoch, nothing told of the loader": (
        "input-bound/start-up",
        T(first_batch_ms=300, epochs=20, steps=20, data_told=False, workers=1),
    ),
    "each epoch begins slowly": (
        "slow-loop-start/forward",
        T(first_steps=(3, 150), epochs=4, steps=60, step_ms=10),
    ),
    "each epoch begins slowly, backward": (
        "slow-loop-start/backward",
        T(first_steps=(1, 400), epochs=5, steps=40, where="backward"),
    ),
    "each epoch begins slowly, hiccups": (
        "slow-loop-start/forward",
        T(first_steps=(5, 60), epochs=20, steps=30, hiccups=0.1),
    ),
    "between epochs": ("between-steps/loops", T(between_ms=500, epochs=8, steps=20)),
    "between epochs, mild": ("between-steps/loops", T(between_ms=350, epochs=5, steps=40)),
    "between epochs, nothing told of the loader": (
        "between-steps/loops",
        T(between_ms=600, epochs=6, steps=30, data_told=False, workers=1),
    ),
    "behind each step": ("between-steps/steps", T(behind_ms=9, loop=False, marks=True)),
    "an evaluation of which the mode tells": (
        "evaluation-heavy/",
        T(by_mode=60, epochs=8, steps=20),
    ),
    "two kinds of steps": ("two-kinds/forward", T(kinds=(0.5, 5.0))),
    "two kinds of steps, few of one": ("two-kinds/forward", T(kinds=(0.2, 6.0), steps=200)),
    "two kinds of steps, far apart": ("two-kinds/forward", T(kinds=(0.5, 30.0))),
    "two kinds of steps, backward": ("two-kinds/backward", T(kinds=(0.5, 3.0), where="backward")),
    "warm-up": ("slow-warm-up/forward", T(warm=5, warm_ms=400)),
    "warm-up, backward": ("slow-warm-up/backward", T(warm=12, warm_ms=150, where="backward")),
    "a logger": ("other-heavy/", T(log_ms=9)),
    "a logger, mild": ("other-heavy/", T(log_ms=5.5)),
    "a logger below a span of the program": ("other-heavy/", T(log_ms=9, around=True)),
    "gaps": ("not-annotated/", T(gap_ms=9)),
    "gaps below a span of the program": ("not-annotated/", T(gap_ms=9, around=True)),
    "gaps without a loop": ("not-annotated/", T(gap_ms=9, loop=False, marks=True)),
    "slow step": ("slow-step/forward", T(slow={77: 600.0})),
    "slow step, backward": ("slow-step/backward", T(slow={131: 500.0}, where="backward")),
    "slow steps": ("slow-step/forward", T(slow={77: 600.0, 130: 400.0}, steps=120)),
    "slow step among hiccups": ("slow-step/forward", T(slow={90: 500.0}, hiccups=0.15)),
    "beat": ("periodic/forward", T(every=9, every_ms=30)),
    "beat, rare": ("periodic/forward", T(every=25, every_ms=60, steps=200)),
    "beat in time that is in no span": ("periodic/none", T(every=9, every_ms=30, where="nowhere")),
    "beat in noise": ("periodic/forward", T(every=11, every_ms=30, jitter=0.3, hiccups=0.1)),
    "slower and slower": ("slower-and-slower/forward", T(slower=0.006, drift=0.01)),
    "slower and slower, backward": (
        "slower-and-slower/backward",
        T(slower=0.006, where="backward"),
    ),
    "slower and slower, optimizer, until it is most of a step": (
        "slower-and-slower/optimizer",
        T(slower=0.25, where="step"),
    ),
    "slower since": ("slower-since/forward", T(since=(110, 1.8))),
    "slower since, by a quarter": (
        "slower-since/backward",
        T(since=(600, 0.5), where="backward", step_ms=10, steps=1200, jitter=0.1),
    ),
    "slower since, backward": ("slower-since/backward", T(since=(90, 1.2), where="backward")),
    "leak": ("memory-creep/memory bytes, process", T(leak=3e6)),
    "leak, slow": ("memory-creep/memory bytes, process", T(leak=6e5, steps=150)),
}

# Nothing is wrong here, though some of it looks odd.
CLEAN: dict[str, Training] = {
    "plain": T(),
    "a little logging": T(log_ms=1),
    "below a span of the program": T(around=True),
    "jitter": T(jitter=0.25),
    "drift": T(drift=0.05),
    "drift and jitter": T(drift=0.08, jitter=0.15),
    "hiccups": T(hiccups=0.08),
    "many hiccups": T(hiccups=0.3, jitter=0.3),
    "no workers": T(workers=0, item_ms=0.1, collate_ms=0.2),
    "accumulation": T(accumulate=4),
    "evaluation": T(evaluate=20),
    "evaluation, not annotated": T(evaluate=60, told=False),
    "a checkpoint an epoch": T(checkpoint=(100, 60)),
    "a checkpoint an epoch, longer": T(checkpoint=(150, 60), steps=150),
    "ranks": T(world=4, comm_ms=1.0),
    "hidden communication": T(world=4, hidden_comm_ms=8),
    "memory that saturates": T(saturating=600e6),
    "memory like a saw": T(sawtooth=400e6),
    "steps marked": T(marks=True),
    "no bodies": T(blocks=False),
    "step numbers alone": T(loop=False),
    "optimizer alone": T(loop=False, numbered=False),
    "long": T(steps=500),
    "short": T(steps=12, epochs=1),
    "workers that start": T(persistent=False, spawn_ms=60, epochs=3),
    "small steps": T(step_ms=3, item_ms=0.05, gap_ms=0.1, transfer_ms=0.05, take_over_ms=0.1),
    "busy for a while": T(contention=(100, 150, 1.8)),
    "busy at the end": T(contention=(120, 999, 1.4)),
    "slow for half a second": T(steps=36, step_ms=12, since=(40, 1.8), where="backward"),
    "busy at the start": T(contention=(0, 25, 1.8)),
    "two lengths": T(bimodal=0.8),
    "two lengths, much apart": T(bimodal=2.0),
    "a short gap between epochs": T(between_ms=120, epochs=5, steps=40),
    "a start that a longer run pays once": T(start_ms=4000),
    "an evaluation between epochs": T(evaluate=60, epochs=6, steps=60),
    "a short evaluation of which the mode tells": T(by_mode=12, epochs=6, steps=60),
    "checkpoints between epochs": T(save_ms=50, epochs=6, steps=60),
    "a first batch that takes a little": T(first_batch_ms=60, epochs=6, steps=60),
    "an epoch begins a little slowly": T(first_steps=(2, 8), epochs=6, steps=60),
    "the first epoch begins slowly": T(slow={1: 150.0, 2: 80.0}, epochs=4, steps=60),
    "a long tail": T(tail=0.2),
    "a crowded machine": T(contention=(100, 180, 1.5), crowded=True),
}

CATEGORIES = (
    *(
        "compute",
        "data",
        "dataloader",
        "comm",
        "device",
        "checkpoint",
        "pipeline",
        "counter",
        "other",
    ),
)
