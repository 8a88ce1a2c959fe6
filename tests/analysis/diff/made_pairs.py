"""Pairs of trainings that never ran, of which it is known what became slower, or that nothing did."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from analysis.why.made_runs import Training

from dftrace_ai.analysis.diff import Diff, Row, compare
from dftrace_ai.analysis.diff.comparing import read_run
from dftrace_ai.analysis.diff.sampled_run import SampledRun

TOLD = {"slower", "faster", "new", "gone"}


class Planted(NamedTuple):
    """Two trainings, and by which factor the time of names differs; None for those that are new."""

    before: Training
    after: Training
    factors: dict[str, float | None]


class Told(NamedTuple):
    """A row that says that something has changed."""

    kind: str
    name: str


def _planted(factors: dict[str, float | None], common: Training, **changes: object) -> Planted:
    return Planted(common, replace(common, **changes), factors)  # type: ignore[arg-type]


T = Training
PLANTED: dict[str, Planted] = {
    "forward": _planted({"compute.forward": 1.2}, T(), since=(0, 0.2)),
    "forward, a little": _planted({"compute.forward": 1.06}, T(), since=(0, 0.06)),
    "forward in noise": _planted({"compute.forward": 1.3}, T(jitter=0.2), since=(0, 0.3)),
    "forward, few steps": _planted({"compute.forward": 1.3}, T(steps=30, epochs=1), since=(0, 0.3)),
    "backward among hiccups": _planted(
        {"compute.backward": 1.25}, T(hiccups=0.08, where="backward"), since=(0, 0.25)
    ),
    "optimizer of micro-batches": _planted(
        {"compute.step": 1.5}, T(accumulate=4, where="step"), since=(0, 0.5)
    ),
    "copies": _planted({"device.transfer": 3.0}, T(), transfer_ms=0.9),
    "communication": _planted({"comm.all_reduce": 2.0}, T(world=4, comm_ms=2), comm_ms=4.0),
    "checkpoints": _planted(
        {"checkpoint.capture": 3.0}, T(checkpoint=(20, 20)), checkpoint=(20, 60)
    ),
    "new checkpoints": _planted({"checkpoint.capture": None}, T(), checkpoint=(20, 20)),
    "items beside": _planted({"data.item": 1.5}, T(), item_ms=1.5),
    "items inline": _planted({"data.item": 1.5}, T(workers=0), item_ms=1.5),
    "collate beside": _planted({"data.preprocess.collate": 2.0}, T(), collate_ms=0.6),
    "gaps": _planted({"none.not annotated": 11.0}, T(blocks=False), gap_ms=2.2),
    "gaps in bodies": _planted({"dataloader.fetch.block": 11.0}, T(), gap_ms=2.2),
    "steps marked": _planted({"compute.forward": 1.2}, T(marks=True), since=(0, 0.2)),
    "by step numbers": _planted({"compute.forward": 1.2}, T(loop=False), since=(0, 0.2)),
    "starved": _planted({"data.item": 20.0, "dataloader.fetch.iter": 120.0}, T(), item_ms=20.0),
}

# Two runs of each of these differ by chance alone.
ALIKE: dict[str, Training] = {
    "plain": T(steps=60),
    "jitter": T(steps=60, jitter=0.25),
    "drift": T(steps=60, drift=0.05),
    "drift and jitter": T(steps=60, drift=0.08, jitter=0.15),
    "many hiccups": T(steps=60, hiccups=0.3, jitter=0.3),
    "no workers": T(steps=60, workers=0),
    "starved alike": T(steps=60, item_ms=20),
    "checkpoints alike": T(steps=60, checkpoint=(20, 60)),
    "two lengths": T(steps=60, bimodal=0.8),
    "a long tail": T(steps=60, tail=0.2),
}


@cache
def run_of(training: str, after: bool, seed: int) -> SampledRun:
    """A run of a planted pair, or of two alike; each is made once."""
    if training in ALIKE:
        made = ALIKE[training]
    else:
        made = PLANTED[training].after if after else PLANTED[training].before
    return made_run(made, 2 * seed + after)


def made_run(training: Training, seed: int) -> SampledRun:
    with tempfile.TemporaryDirectory() as folder:
        return read_run(training.write(Path(folder), seed), [])


def compared(name: str, seed: int, *, backwards: bool = False) -> Diff:
    """What is said of a pair, or of the same the other way round."""
    runs = [run_of(name, after, seed) for after in (False, True)]
    return compare(*(runs[::-1] if backwards else runs))


def dotted(row: Row) -> str:
    return f"{row.cat}.{row.name}"


def told(found: Diff) -> list[Told]:
    """What is said of names."""
    return [Told(row.change.kind, dotted(row)) for row in found.names if row.change.kind in TOLD]
