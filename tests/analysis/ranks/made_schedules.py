"""Traces of pipelines as torch's schedules run them: messages say their stage, no layout does."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from analysis.trace_lines import TraceLines

MS = 1_000_000
BEGIN = 1_000_000_000
STEP_TRACK, MESSAGES = 1_073_741_825, 1_342_177_280
TAKES = {"forward": 3 * MS, "backward": 6 * MS}
OPTIMIZER, TRANSFER = MS // 2, MS // 10

Schedule = Literal["gpipe", "1f1b"]


class _Stage:
    """A rank with a stage of its own, and the trace that it writes."""

    def __init__(self, number: int, stages: int, told: bool) -> None:
        self.number, self.last, self.told, self.at = number, stages - 1, told, BEGIN
        facts = {"rank": number, "world_size": stages, "local_rank": number, "cpus": 8}
        self.lines = TraceLines(5000 + number, node="node0", **facts)
        members = f'{{"name":"0","description":"default_pg","ranks":{[*range(stages)]}}}'
        self.lines.custom("process_group", members.replace(" ", ""))
        self._seq: dict[tuple[str, int], int] = {}

    def order(self, schedule: Schedule, micro_batches: int) -> deque[tuple[str, int]]:
        """What it computes in a step, one after the other."""
        early = min(self.last + 1 - self.number, micro_batches)
        early = micro_batches if schedule == "gpipe" else early
        passes = deque(("forward", number) for number in range(early))
        for number in range(micro_batches):
            passes.append(("backward", number))
            if early + number < micro_batches:
                passes.append(("forward", early + number))
        return passes

    def message(self, name: str, peer: int, began: int, ended: int, of: tuple[str, int]) -> None:
        """Write what was asked for at one moment and waited for until another."""
        seq = self._seq[name, peer] = self._seq.get((name, peer), -1) + 1
        stage = {"pass": of[0], "microbatch": of[1], "stage_index": self.number}
        told = {"group": "0", "seq": seq, "bytes": 1024, "tag": 0, "direction": name, "peer": peer}
        told |= stage if self.told else {}
        waited = {"until": "waited", "waited_us": (ended - began) / 1000}
        self.lines.span(name, "comm", began, ended - began, MESSAGES, **told, **waited)


def pipeline(
    folder: Path,
    stages: int = 4,
    micro_batches: int = 4,
    *,
    schedule: Schedule = "1f1b",
    steps: int = 60,
    later_ms: Callable[[int, str], float] = lambda _, __: 0,
    told: bool = True,
) -> Path:
    """Write the trace of each stage; `later_ms` is what one takes longer, by stage and pass."""
    draw = random.Random(7)
    ranks = [_Stage(number, stages, told) for number in range(stages)]
    for step in range(steps):
        began = [rank.at for rank in ranks]
        passes = [rank.order(schedule, micro_batches) for rank in ranks]
        there: dict[tuple[int, tuple[str, int]], int] = {}  # when what a stage needs has arrived
        while any(passes):
            for rank, rest in zip(ranks, passes, strict=True):
                while rest:
                    of = name, batch = rest[0]
                    before = rank.number + (-1 if name == "forward" else 1)
                    if 0 <= before < stages:
                        if (rank.number, of) not in there:
                            break
                        arrived = max(there[rank.number, of], rank.at)
                        rank.message("receive", before, rank.at, arrived, of)
                        rank.at = arrived + 10_000
                    rest.popleft()
                    took = (TAKES[name] + later_ms(rank.number, name) * MS) * draw.gauss(1, 0.01)
                    rank.lines.span(name, "compute", rank.at, int(took), microbatch=batch)
                    rank.at += int(took) + 10_000
                    following = 2 * rank.number - before
                    if 0 <= following < stages:
                        there[following, of] = rank.at + TRANSFER
                        rank.message("send", following, rank.at, rank.at + 5000, of)
                        rank.at += 15_000
        for rank, start in zip(ranks, began, strict=True):
            rank.lines.span("step", "compute", rank.at, OPTIMIZER)
            rank.at += OPTIMIZER
            rank.lines.span("step", "pipeline", start, rank.at - start, STEP_TRACK, step=step)
            rank.at += 10_000
    for rank in ranks:
        rank.lines.footer()
        rank.lines.write(folder / f"t-host-{5000 + rank.number}.pfw.gz")
    return folder
