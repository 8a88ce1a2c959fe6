"""Dumps in the form that NCCL's have, of jobs that are made up: run to their end, or to a planted hang.

Each rank has a list of calls on one stream. A collective runs when all of its group have come to it with
the same; a message when both its ranks have. What has not come to that is started or scheduled, as the
watchdog would find it.
"""

from __future__ import annotations

import json
import os
import pickle
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

NS = 1_000_000_000
NOW = 1_800_000_000 * NS

PLANTS = (
    *("nothing", "missing", "op", "size", "dtype", "order", "never started", "no dump"),
    *("message", "circle of messages"),
)


@dataclass(frozen=True)
class Planned:
    """A call that a rank will make: a collective, or messages that begin together."""

    group: str
    op: str
    numel: int = 64
    dtype: str = "Float"
    # from and to, as ranks of the job
    messages: tuple[tuple[int, int], ...] = ()


@dataclass
class MadeJob:
    """A job, and how far it came."""

    groups: dict[str, list[int]]
    calls: dict[int, list[Planned]]
    stops: dict[int, int] = field(default_factory=dict)
    never_starts: dict[int, int] = field(default_factory=dict)
    at: dict[int, int] = field(default_factory=dict)

    def run(self) -> bool:
        """Run as far as it goes; whether that is the end."""
        self.at = dict.fromkeys(self.calls, 0)
        numbers = {rank: self._numbers(calls) for rank, calls in self.calls.items()}
        met: set[tuple[int, int, tuple[int, int]]] = set()
        moved = True
        while moved:
            moved = False
            for rank in self.calls:
                while self._step(rank, numbers, met):
                    moved = True
        return all(self.at[rank] == len(calls) for rank, calls in self.calls.items())

    @staticmethod
    def _numbers(calls: list[Planned]) -> list[int]:
        seen: Counter[str] = Counter()
        found = []
        for call in calls:
            seen[call.group] += not call.messages
            found.append(seen[call.group])
        return found

    def _head(self, rank: int) -> Planned | None:
        at = self.at[rank]
        if at >= min(len(self.calls[rank]), self.stops.get(rank, 1 << 30)):
            return None
        return None if self.never_starts.get(rank) == at else self.calls[rank][at]

    def _step(
        self, rank: int, numbers: dict[int, list[int]], met: set[tuple[int, int, tuple[int, int]]]
    ) -> bool:
        call = self._head(rank)
        if call is None:
            return False
        if not call.messages:
            members = self.groups[call.group]
            if any(
                self._head(one) != call
                or numbers[one][self.at[one]] != numbers[rank][self.at[rank]]
                for one in members
            ):
                return False
            for one in members:
                self.at[one] += 1
            return True
        for pair in call.messages:
            other = pair[pair[0] == rank]
            theirs = self._head(other)
            both = {(rank, self.at[rank], pair), (other, self.at[other], pair)}
            if theirs and pair in theirs.messages and not both & met:
                met |= both
        if all((rank, self.at[rank], pair) in met for pair in call.messages):
            self.at[rank] += 1
            return True
        return False

    def dump(self, rank: int, ahead: int = 0, ring: int = 10_000) -> dict[str, Any]:
        """What the recorder of a rank would write."""
        calls, at = self.calls[rank], self.at[rank]
        until = min(self.stops.get(rank, len(calls)), at + 1 + ahead, len(calls))
        numbers = self._numbers(calls)
        entries: list[dict[str, Any]] = []
        sent: Counter[str] = Counter()
        for index in range(until):
            call = calls[index]
            state = "completed" if index < at else "started" if index == at else "scheduled"
            if self.never_starts.get(rank) == index:
                state = "scheduled"
            sent[call.group] += bool(call.messages)
            known = {
                "record_id": 0,
                "pg_id": 0,
                "process_group": (call.group, call.group),
                "collective_seq_id": numbers[index],
                "p2p_seq_id": sent[call.group],
                "op_id": index,
                "is_p2p": bool(call.messages),
                "time_created_ns": NOW + index,
                "timeout_ms": 600_000,
                "frames": [
                    {"name": "all_reduce", "filename": "/x/torch/distributed.py", "line": 3},
                    {"name": "step", "filename": "/home/train.py", "line": 10 + index},
                ],
            }
            for op, into, out in self._parts(call, rank):
                # NCCL records no event for the parts of a coalesced call.
                alone = len(call.messages) < 2 or op == "coalesced"
                entries.append(known | _state(state if alone else "scheduled"))
                entries[-1] |= {
                    "profiling_name": f"nccl:{op}",
                    "input_sizes": [[into]] if into else [],
                    "output_sizes": [[out]] if out else [],
                    "input_dtypes": [call.dtype] if into else [],
                    "output_dtypes": [call.dtype] if out else [],
                }
        for number, entry in enumerate(entries):
            entry["record_id"] = number
        mine = {name: ranks for name, ranks in self.groups.items() if rank in ranks}
        return {
            "version": "2.10",
            "entries": entries[-ring:],
            "pg_config": {
                name: {"name": name, "desc": name, "ranks": str(ranks)}
                for name, ranks in mine.items()
            },
            "pg_status": {},
            "comm_lib_version": "2.27.3",
        }

    def _parts(self, call: Planned, rank: int) -> list[tuple[str, int, int]]:
        if not call.messages:
            size = len(self.groups[call.group])
            into = call.numel * (size if call.op == "_reduce_scatter_base" else 1)
            return [(call.op, into, call.numel * (size if call.op == "_all_gather_base" else 1))]
        place = self.groups[call.group].index
        parts = [
            (f"send {place(a)}->{place(b)}", call.numel, 0)
            if a == rank
            else (f"recv {place(b)}<-{place(a)}", 0, call.numel)
            for a, b in call.messages
        ]
        return [*parts, ("coalesced", 0, 0)] if len(parts) > 1 else parts


def _state(state: str) -> dict[str, Any]:
    return {
        "state": state,
        "retired": state == "completed",
        "time_discovered_started_ns": None if state == "scheduled" else NOW,
        "time_discovered_completed_ns": NOW if state == "completed" else None,
    }


def a_job(rng: random.Random) -> MadeJob:
    """A training on 4 to 32 ranks: groups of tensors, of data, of a pipeline, and all."""
    tp, dp, pp = rng.choice([2, 4]), rng.choice([1, 2, 4]), rng.choice([1, 2, 4])
    world = tp * dp * pp if tp * dp * pp >= 4 else 2 * tp
    dp = world // tp // pp
    groups = {"world": list(range(world))}
    of_kind: dict[str, dict[int, str]] = {"tp": {}, "dp": {}, "pp": {}, "world": {}}
    for rank in range(world):
        # a rank is (stage, replica, slice)
        stage, replica, part = rank // (tp * dp), rank // tp % dp, rank % tp
        for kind, name in (
            ("tp", f"tp{stage}.{replica}"),
            ("dp", f"dp{stage}.{part}"),
            ("pp", f"pp{replica}.{part}"),
        ):
            if rank not in groups.setdefault(name, []):
                groups[name].append(rank)
            of_kind[kind][rank] = name
        of_kind["world"][rank] = "world"
    calls: dict[int, list[Planned]] = {rank: [] for rank in range(world)}
    batched = rng.random() < 0.5
    for step in range(rng.randint(4, 20)):
        for kind in ("tp", "pp", "tp", "dp", "dp", *(("world",) if step % 5 == 4 else ())):
            op = rng.choice(["all_reduce", "_all_gather_base", "_reduce_scatter_base"])
            plan = Planned("", op, rng.choice([64, 128, 4096]))
            for rank, mine in calls.items():
                group = of_kind[kind][rank]
                if kind == "pp":
                    mine += _passed_on(groups[group], rank, group, plan.numel, batched)
                else:
                    is_world = kind == "world"
                    mine.append(replace(plan, group=group, op="all_reduce" if is_world else op))
    return MadeJob(groups, calls)


def _passed_on(
    stages: list[int], rank: int, group: str, numel: int, batched: bool
) -> list[Planned]:
    """What a stage gets from the one before and gives to the one behind: one by one, or at once."""
    at = stages.index(rank)
    pairs = [(stages[at - 1], rank)] if at else []
    pairs += [(rank, stages[at + 1])] if at + 1 < len(stages) else []
    if batched:
        return [Planned(group, "messages", numel, messages=tuple(pairs))] if pairs else []
    return [Planned(group, "message", numel, messages=(pair,)) for pair in pairs]


@dataclass
class Planted:
    """A job with a hang: what it is, whose, and in how large a group; and its dumps."""

    kind: str
    rank: int
    group_size: int
    dumps: dict[int, dict[str, Any]]


KINDS = {
    "nothing": "none",
    "op": "mismatched collective",
    "size": "mismatched size",
    "dtype": "mismatched dtype",
    "order": "wrong order",
    "circle of messages": "wrong order",
    "message": "missing",
}


def planted(seed: int) -> Planted:
    """A job by its seed."""
    rng = random.Random(seed)
    job = a_job(rng)
    plant = PLANTS[seed % len(PLANTS)]
    bad = rng.randrange(len(job.calls))
    mine = job.calls[bad]
    places = [
        at
        for at, call in enumerate(mine)
        if at >= len(mine) // 2
        and (len(job.groups[call.group]) > 1)
        and bool(call.messages) == ("message" in plant)
    ]
    if not places:
        plant = "nothing"
    at = rng.choice(places) if places else 0
    if plant in ("missing", "message", "no dump"):
        job.stops[bad] = at
    elif plant == "never started":
        job.never_starts[bad] = at
    elif plant == "order":
        other = at + 1
        if other < len(mine) and mine[other].group != mine[at].group and not mine[other].messages:
            mine[at], mine[other] = mine[other], mine[at]
    elif plant == "circle of messages":
        # It and its neighbour both send first, or both receive, where nothing takes it in between.
        pair = mine[at].messages[0]
        for rank in pair:
            job.calls[rank].append(Planned(mine[at].group, "message", messages=(pair,)))
            job.calls[rank].append(Planned(mine[at].group, "message", messages=(pair[::-1],)))
        first = job.calls[pair[0]]
        first[-2:] = first[:-3:-1]
    elif plant != "nothing":
        change = {"op": {"op": "broadcast"}, "size": {"numel": 7}, "dtype": {"dtype": "BFloat16"}}
        mine[at] = replace(mine[at], **change[plant])
    size = len(job.groups[mine[at].group]) if mine else 1
    if job.run():
        plant = "nothing"
    ahead, ring = rng.choice([0, 3]), rng.choice([60, 10_000])
    dumps = {rank: job.dump(rank, ahead, ring) for rank in job.calls}
    if plant == "no dump":
        del dumps[bad]
    return Planted(KINDS.get(plant, plant), bad, size, dumps)


def write(dumps: dict[int, dict[str, Any]], folder: Path, after_s: float = 61.0) -> Path:
    """Write dumps as the recorder does, so long after the last call."""
    folder.mkdir(exist_ok=True)
    for rank, dump in dumps.items():
        path = folder / f"nccl_trace_rank_{rank}"
        path.write_bytes(pickle.dumps(dump, protocol=2))
        touched(path, dump, after_s)
    return folder


def write_json(dumps: dict[int, dict[str, Any]], folder: Path, after_s: float = 61.0) -> Path:
    """Write dumps as JSON, which has no frames and 0 for no time."""
    folder.mkdir(exist_ok=True)
    for rank, dump in dumps.items():
        entries = [
            {name: 0 if value is None else value for name, value in entry.items()}
            for entry in dump["entries"]
        ]
        for entry in entries:
            del entry["frames"]
        path = folder / f"fr_{rank}.json"
        path.write_text(json.dumps(dump | {"entries": entries}, sort_keys=True))
        touched(path, dump, after_s)
    return folder


def touched(path: Path, dump: dict[str, Any], after_s: float) -> None:
    """Make a file as old as if it were written so long after the last call of a dump."""
    newest = max((entry["time_created_ns"] for entry in dump["entries"]), default=NOW)
    written = newest + round(after_s * NS)
    os.utime(path, ns=(written, written))
