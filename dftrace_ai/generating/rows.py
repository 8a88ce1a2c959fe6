"""A made trace, block by block: times of a process by the clock of its host, as rows of numbers.

Apart from `writing`, which shares ranks out over processes: this half is one trace.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np

from dftrace_ai._native import MadeTrace
from dftrace_ai._version import __version__
from dftrace_ai.generating.hosts import START_NS, TIME_BASE_US
from dftrace_ai.generating.lines import events_of, loads_of, tracks_of
from dftrace_ai.generating.timing import NOTICE_BOUND_NS, poll_bound
from dftrace_ai.trace_format.file_names import SUFFIX_OF

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dftrace_ai.generating.hosts import Host
    from dftrace_ai.generating.job import Job
    from dftrace_ai.generating.lines import Event

FIRST_PID, PIDS_OF_RANK, PARENT_PID = 4000, 100, 3999
_COLUMNS: Final = 6
_NEVER: Final = -1
# Behind the events that tell of groups.
_FIRST_ID: Final = 16


class Rows:
    """The trace of a process of a made job: a rank, or one of its loader processes."""

    def __init__(
        self, job: Job, rank: int, host: Host, compression: str, worker: int | None = None
    ) -> None:
        self._job, self._rank, self._host, self._worker = job, rank, host, worker
        local = rank % job.per_host
        of_rank = FIRST_PID + local * PIDS_OF_RANK
        pid = of_rank if worker is None else of_rank + 1 + worker
        self.name = f"train-{host.name}-{pid}{SUFFIX_OF[compression]}"
        name = f"rank {rank} · {host.name}"
        header = {
            "version": __version__,
            "rank": rank,
            "world_size": job.ranks,
            "local_rank": local,
            "launcher": "torchrun",
            **({"layout": job.layout_of(rank)} if job.layout_of(rank) else {}),
            "cpus": 64,
            "memory_bytes": 540_951_887_872,
            "cores": 32,
            "generated": {"seed": job.seed, "causes": [cause.words for cause in job.causes]},
        }
        self._trace = MadeTrace(
            host=host.name,
            pid=pid,
            parent_pid=PARENT_PID if worker is None else of_rank,
            run=job.run,
            time_base_us=TIME_BASE_US,
            process_name_json=json.dumps(name, ensure_ascii=False),
            header_json="," + json.dumps(header, separators=(",", ":"))[1:-1],
            compression=compression,
            boot_id=host.boot_id,
            pid_namespace=4_026_531_836 + host.number,
            process_start=43_200_000 + local,
            epoch_offset_ns=host.clock_offset_ns,
            realtime_ns=START_NS + host.offset_ns,
            synchronised=host.synchronised,
            clock_error_us=abs(host.offset_ns) // 1000,
            frequency=0,
        )
        self._pid = pid
        self._tracks = {pid: "MainThread"} if worker is not None else tracks_of(job, pid)
        self._events = events_of(job, rank, pid) if worker is None else loads_of(pid)
        self._dead = min(
            (
                cause.size
                for cause in job.causes
                if cause.hangs or (cause.kind == "dead" and cause.at == rank)
            ),
            default=None,
        )
        self._plan(self._events)

    def _plan(self, events: list[Event]) -> None:
        """Work out what is the same in the rows of all steps."""
        offset = {f"{one.cat}/{one.name}": at for at, one in enumerate(events)}
        width = _COLUMNS + max(len(one.numbers) for one in events)
        self._each = np.zeros((len(events), width), np.int64)
        self._first = np.zeros((len(events), width), np.int64)
        self._told: list[tuple[int, int, str]] = []
        level = {one: 1 + bool(one.parent) for one in events}
        for at, one in enumerate(events):
            head = f'"name":{json.dumps(one.name)},"cat":"{one.cat}"'
            pattern = self._trace.add_pattern(one.ph, head, one.tid, level[one], one.args)
            self._first[at, 0] = pattern
            self._each[at, 3], self._first[at, 3] = len(events), _FIRST_ID + at
            if one.parent:
                self._each[at, 4] = len(events)
                self._first[at, 4] = _FIRST_ID + offset[one.parent]
            self._each[at, 5] = int(one.item)
            self._first[at, 5] = 1 if one.item else _NEVER
            for place, number in enumerate(one.numbers, _COLUMNS):
                self._each[at, place], self._first[at, place] = number.each, number.first
                if number.told:
                    self._told.append((at, place, number.told))

    def opening(self) -> bytes:
        """Return the first blocks: who it is, its tracks and groups."""
        found = self._trace.opening(self._tracks)
        if self._worker is not None:
            return found
        rows = []
        for number, (name, description, ranks) in enumerate(self._job.groups_of(self._rank), 1):
            group = {"name": name, "description": description, "ranks": list(ranks)}
            value = json.dumps(json.dumps(group))
            args = f',"name":"process_group","value":{value}'
            pattern = self._trace.add_pattern(
                "M", '"name":"CM","cat":"dftracer"', self._pid, 1, args
            )
            rows.append([pattern, START_NS, START_NS, number, 0, _NEVER])
        return found + self._trace.rows(np.array(rows, np.int64), _COLUMNS)

    def steps(self, first: int, names: dict[str, int], times: NDArray[np.int64]) -> bytes:
        """Return blocks of some steps from one on; `times` are (steps, names), from the start."""
        steps = np.arange(first, first + len(times))
        if self._worker is not None:
            mine = steps % self._job.workers == self._worker
            steps, times = steps[mine], times[mine]
        if self._dead is not None:
            alive = steps < self._dead
            steps, times = steps[alive], times[alive]
        if not len(steps):
            return b""
        events = self._events
        rows = self._each * steps[:, None, None] + self._first
        shown = self._host.shown(times)
        rows[:, :, 1] = shown[:, [names[one.begin] for one in events]]
        rows[:, :, 2] = shown[:, [names[one.end] for one in events]]
        for at, place, told in self._told:
            rows[:, at, place] = self._number(told, rows[:, at, 2] - rows[:, at, 1], steps)
        kept = [
            self._has(one.only, steps) if one.only else np.ones(len(steps), bool) for one in events
        ]
        # A clock that is set back in the middle of a span would make it shorter than nothing.
        rows[:, :, 2] = np.maximum(rows[:, :, 2], rows[:, :, 1])
        flat = rows[np.stack(kept, axis=1)] if any(one.only for one in events) else rows
        return self._trace.rows(np.ascontiguousarray(flat), rows.shape[2])

    def _number(
        self, told: str, took: NDArray[np.int64], steps: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        if told == "loss":
            return 250_000 // (100 + steps)
        if told == "took":
            return np.maximum(took, 0)
        late = np.full(len(took), NOTICE_BOUND_NS)
        return late + poll_bound(took) if self._job.poll else late

    def _has(self, only: str, steps: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return in which steps something comes that comes now and then."""
        found = np.zeros(len(steps), bool)
        for cause in self._job.causes:
            if cause.kind == only == "gc":
                found |= (steps + 7 * self._rank) % cause.every == 0
            elif cause.kind == only:
                found |= steps % cause.every == cause.every - 1
        return found

    def ending(self, last_ns: int, *, index: bool) -> bytes:
        """Return index and closing line; nothing of a process that has died."""
        if self._dead is not None:
            return b""
        return self._trace.ending(int(self._host.shown(np.array([last_ns]))[0]), index)
